//go:build unix

package serve

import "golang.org/x/sys/unix"

// disk returns the size of the disk under a directory, and the part of it that is free for
// this process, in bytes.
func disk(dir string) (size, free uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return uint64(s.Blocks) * uint64(s.Bsize), uint64(s.Bavail) * uint64(s.Bsize), nil
}
