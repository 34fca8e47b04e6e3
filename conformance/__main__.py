"""`python -m conformance`: does it keep the contract?"""

from conformance.command import conformance

if __name__ == "__main__":
    conformance(prog_name="python -m conformance")
