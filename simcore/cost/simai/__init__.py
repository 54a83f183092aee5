"""SimAI-Analytical's sums over the rows of a workload, in closed form."""
