"""The last step: published marts become audit.json and audit.html."""
