"""What a replay says: report, breakdown, pictures, exports, comparisons."""
