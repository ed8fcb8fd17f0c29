"""The live view of `tandem top`. Needs the extra [top]; nothing else imports it."""
