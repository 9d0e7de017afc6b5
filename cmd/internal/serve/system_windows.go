package serve

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lock takes the lock of a file. It fails with errLocked if another process holds it.
func lock(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return errLocked
	}
	return err
}

// disk returns the size of the disk under a directory, and the part of it that is free for
// this process, in bytes.
func disk(dir string) (size, free uint64, err error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(path, &free, &size, nil)
	}
	return size, free, err
}

// openFiles is how many files the process may have open. Windows has no limit.
func openFiles() int { return mostFiles }
