"""Who may come onto a GPU so that all who are on it can finish."""
