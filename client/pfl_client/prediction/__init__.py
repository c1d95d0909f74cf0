"""Predictions with a site's finished model, offline, for files and arrays.

from pfl_client.prediction import Predictor
for answer in Predictor.load("hospital_a").predict(["new_patients/"]): ...
"""

from pfl_client.prediction.inputs import Block, Unread, Wanted
from pfl_client.prediction.predictor import Answer, Predictor, View
from pfl_client.prediction.serving import Served

__all__ = ["Answer", "Block", "Predictor", "Served", "Unread", "View", "Wanted"]
