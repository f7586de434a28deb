"""`quintet up`: everything on one machine, as child processes of one command."""
