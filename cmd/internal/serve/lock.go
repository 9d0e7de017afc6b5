package serve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// lockFile is the file in the data directory that the process which uses the directory
// holds a lock on. The system releases the lock when the process ends, even by kill -9.
// The file stays.
const lockFile = "lapse.lock"

var errLocked = errors.New("another lapse serve is using it")

// lockData creates the data directory if it does not exist, and locks it for this process.
func lockData(dir string) (release func() error, err error) {
	release, err = Lock(dir)
	switch {
	case errors.Is(err, errLocked):
		return nil, fmt.Errorf("--data %s: %w: give each process a directory of its own, or let them share servers with "+
			"--nats and --redis", dir, errLocked)
	case err != nil:
		return nil, fmt.Errorf("--data %s: %w", dir, err)
	}
	return release, nil
}

// Lock creates a directory if it does not exist, and locks it for this process.
func Lock(dir string) (release func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock: %w", err), f.Close())
	}
	return f.Close, nil
}
