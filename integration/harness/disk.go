package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// LimitFileSize lets each write of the running process fail that makes a file longer than so many bytes: such a write
// gets an I/O error. A negative number removes the limit.
func (p *Process) LimitFileSize(bytes int64) {
	p.t.Helper()
	limit := "unlimited"
	if bytes >= 0 {
		limit = strconv.FormatInt(bytes, 10)
	}
	if out, err := exec.Command("prlimit", "--pid", strconv.Itoa(p.running.cmd.Process.Pid),
		"--fsize="+limit+":unlimited").CombinedOutput(); err != nil {
		p.t.Fatalf("prlimit: %v: %s", err, out)
	}
}

// Disk is a file system of its own, with little room, below a server's directory.
type Disk struct {
	t    testing.TB
	path string
}

// SmallDisk gives a server that was not started a disk of so many bytes for its streams. It returns nil if this
// process may not mount one.
func (n *NATS) SmallDisk(bytes int) *Disk {
	n.t.Helper()
	d := &Disk{t: n.t, path: n.store()}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		n.t.Fatal(err)
	}
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", bytes), "lapse-test", d.path).
		CombinedOutput()
	if err != nil {
		n.t.Logf("there is no disk of its own: %v: %s", err, out)
		return nil
	}
	n.t.Cleanup(func() {
		n.Kill()
		if out, err := exec.Command("umount", d.path).CombinedOutput(); err != nil {
			n.t.Errorf("umount: %v: %s", err, out)
		}
	})
	return d
}

func (d *Disk) filling() string { return filepath.Join(d.path, "filling") }

// Fill takes all room of the disk but so many bytes.
func (d *Disk) Fill(but int64) {
	d.t.Helper()
	file, err := os.Create(d.filling())
	if err != nil {
		d.t.Fatal(err)
	}
	defer file.Close()
	piece := make([]byte, 64<<10)
	size := int64(0)
	for err == nil {
		var n int
		n, err = file.Write(piece)
		size += int64(n)
	}
	if err := file.Truncate(max(0, size-but)); err != nil {
		d.t.Fatal(err)
	}
}

// Empty gives the room back.
func (d *Disk) Empty() {
	d.t.Helper()
	if err := os.Remove(d.filling()); err != nil {
		d.t.Fatal(err)
	}
}
