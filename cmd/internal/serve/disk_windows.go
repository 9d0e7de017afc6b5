package serve

import "golang.org/x/sys/windows"

// disk returns the size of the disk under a directory, and the part of it that is free for
// this process, in bytes.
func disk(dir string) (size, free uint64, err error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(path, &free, &size, nil)
	}
	return size, free, err
}
