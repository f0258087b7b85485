"""A committee of networks, boosted trees and other classifiers that decides at one price."""
