package cli

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

// meter counts the bytes that are read of an input.
type meter struct {
	io.Reader
	read atomic.Int64
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	m.read.Add(int64(n))
	return n, err
}

// left is how many bytes an input has; 0 if that is not known, as of a pipe.
func left(in io.Reader) int64 {
	file, ok := in.(*os.File)
	if !ok {
		return 0
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	at, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	return info.Size() - at
}

// shown is the progress of an import: the counts, or on a terminal, if it is known how much there is
// to read, a bar.
func (i *importing) shown(in io.Reader) func() string {
	what, whole := "importing "+i.Name, left(in)
	if whole == 0 || !i.streams.ErrIsTerminal() {
		return func() string { return what + " " + i.count().String() }
	}
	return func() string {
		i.mu.Lock()
		n, began, before := i.counts, i.began, i.before
		i.mu.Unlock()
		line := output.Bar(what, before, i.read.read.Load(), whole, int64(n.Created+n.Replaced+n.Duplicate), time.Since(began))
		if n.Failed > 0 {
			line += fmt.Sprintf("  %s failed", output.Grouped(int64(n.Failed)))
		}
		return line
	}
}
