package reload

// SetEntriesAtOnce sets how many entries a batch has.
func SetEntriesAtOnce(n int) { entriesAtOnce = n }
