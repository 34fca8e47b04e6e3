"""The suite that proves any collector keeps the contract, and the real servers it runs against."""
