package serve

// openFiles is how many files the process may have open. Windows has no limit.
func openFiles() int { return mostFiles }
