"""What coordinator and sites both know; imports neither of them."""
