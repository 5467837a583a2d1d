"""What runs inside a board of the lab: its files where the product reads them, and the vendor's tools."""
