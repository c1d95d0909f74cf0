"""A site's half: change one number and send the model back."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from noop.noop_model import change_one_number

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer with the model as it came, but for one number."""
    received = message.content.array_records["arrays"]
    model = {name: array.numpy() for name, array in received.items()}
    changed = change_one_number(model, str(context.run_config["size"]))
    arrays = ArrayRecord({name: Array(array) for name, array in changed.items()})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
    return Message(content=content, reply_to=message)
