package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink/wire"
)

var problemDisk = health.Problem{Name: "disk", Advice: "Make room on the disk of the data directory."}

const (
	dataEvery = 250 * time.Millisecond

	// The disk is nearly full if it has less free space than both of these.
	leastFree      = 64 << 20 // bytes
	leastFreeShare = 20       // a twentieth of the disk

	limitedBelow = 4 // with less than so many times that, the growth of the streams is limited
	refusedBelow = 2 // the streams leave half of it free
)

// dataWatch finds out when somebody removes the data directory: the embedded NATS server would go
// on, and acknowledge writes into files that are already deleted. It also keeps the streams from filling
// the disk, reports when it is nearly full, and is a [prometheus.Collector] of the size of the disk.
type dataWatch struct {
	dir  string
	lock os.FileInfo     // of the lock file that this process holds
	dirs []string        // of the streams
	seen map[string]bool // the dirs that existed: the server creates them with the streams

	board *health.Board

	// What the tests replace: how large the disk is, and what limits the growth of the streams.
	disk  func(dir string) (size, free uint64, err error)
	limit func(more int64) error
}

// newDataWatch makes a watch of a directory that this process has locked.
func newDataWatch(dir string, prefix wire.Prefix, shards int, board *health.Board,
	limit func(more int64) error) (*dataWatch, error) {
	if _, err := wire.ParsePrefix(string(prefix)); err != nil {
		return nil, err
	}
	lock, err := os.Stat(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("--data %s: %w", dir, err)
	}
	w := &dataWatch{dir: dir, lock: lock, seen: make(map[string]bool), board: board, disk: disk, limit: limit}
	streams := append(prefix.LogStreams(shards), prefix.ConfigStream(), prefix.EventsStream())
	for _, stream := range streams {
		w.dirs = append(w.dirs, filepath.Join(dir, "nats", "jetstream", "$G", "streams", stream, "msgs"))
	}
	return w, nil
}

// Run returns an error once a part of the directory is gone, and nil once ctx is done.
func (w *dataWatch) Run(ctx context.Context) error {
	tick := time.NewTicker(dataEvery)
	defer tick.Stop()
	for {
		if what := w.missing(); what != "" {
			return fmt.Errorf("--data %s: %s was removed or replaced while lapse was running, so lapse ends: restore the "+
				"directory from a backup, or start lapse again with what is left", w.dir, what)
		}
		w.checkDisk()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// missing is the path that is gone; "" if none is. Only the error that a file does not exist
// shows that it is gone.
func (w *dataWatch) missing() string {
	path := filepath.Join(w.dir, lockFile)
	lock, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(lock, w.lock) {
		return path
	}
	for _, dir := range w.dirs {
		_, err := os.Stat(dir)
		if err == nil {
			w.seen[dir] = true
		} else if w.seen[dir] && errors.Is(err, os.ErrNotExist) {
			return dir
		}
	}
	return ""
}

var (
	dataSize = prometheus.NewDesc("lapse_data_size_bytes", "Size of the disk of --data. Absent without the embedded "+
		"NATS server.", nil, nil)
	dataFree = prometheus.NewDesc("lapse_data_free_bytes", "Free bytes on the disk of --data.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (w *dataWatch) Describe(c chan<- *prometheus.Desc) { c <- dataSize; c <- dataFree }

// Collect implements [prometheus.Collector].
func (w *dataWatch) Collect(c chan<- prometheus.Metric) {
	size, free, err := w.disk(w.dir)
	if err != nil {
		return // as in checkDisk
	}
	c <- prometheus.MustNewConstMetric(dataSize, prometheus.GaugeValue, float64(size))
	c <- prometheus.MustNewConstMetric(dataFree, prometheus.GaugeValue, float64(free))
}

// checkDisk reports on the board that the disk is nearly full, and then lets the streams take no more. Once there is
// room, they go on by themselves. A disk that is full to the last byte would not allow that: writes of the NATS server
// fail there, and a stream with a failed write accepts no more until a restart. Where little more is free, the streams
// may grow by just that, so that nobody can fill the disk between two looks.
func (w *dataWatch) checkDisk() {
	size, free, err := w.disk(w.dir)
	if err != nil {
		return // if the directory is gone, missing reports it
	}
	few := min(leastFree, size/leastFreeShare)
	more, problem := int64(-1), error(nil)
	if free < limitedBelow*few {
		more = max(int64(free)-int64(few/refusedBelow), 0)
	}
	if free < few {
		problem = fmt.Errorf("the disk of --data %s has %d KiB left of %d KiB, and with less than %d KiB NATS refuses "+
			"writes until there is room again: make room", w.dir, free>>10, size>>10, few/refusedBelow>>10)
	}
	if err := w.limit(more); err != nil && problem == nil {
		problem = fmt.Errorf("the streams cannot be kept from filling the disk of --data %s: %w", w.dir, err)
	}
	w.board.Set(problemDisk, problem)
}

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
