"""The coordinator's view of the sites: who is present, what each was asked, what came back."""
