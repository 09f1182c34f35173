"""The audits of `tacit audit`, one module each, and what they share. `tacit.cli.commands.audit` lists them."""
