//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package serve

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lock takes the lock of a file. It fails with errLocked if another process holds it.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// disk returns the size of the disk under a directory, and the part of it that is free for
// this process, in bytes.
func disk(dir string) (size, free uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return uint64(s.Blocks) * uint64(s.Bsize), uint64(s.Bavail) * uint64(s.Bsize), nil
}

// openFiles is how many files the process may have open. Go has raised that to what the system allows.
func openFiles() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return leastFiles
	}
	return int(min(uint64(l.Cur), mostFiles)) // it is signed on some systems
}
