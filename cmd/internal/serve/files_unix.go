//go:build unix

package serve

import "golang.org/x/sys/unix"

// openFiles is how many files the process may have open. Go has raised that to what the system allows.
func openFiles() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return leastFiles
	}
	return int(min(uint64(l.Cur), mostFiles)) // it is signed on some systems
}
