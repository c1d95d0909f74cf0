"""The sites of a run as the coordinator sees them: who is here, what each was asked, what came back."""
