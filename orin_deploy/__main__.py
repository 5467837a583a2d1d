"""`python -m orin_deploy`."""

from orin_deploy.cli.main import main

main()
