package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Resident returns the resident memory of the process in bytes; 0 if it does not run.
func (p *Process) Resident() int64 {
	if !p.Running() {
		return 0
	}
	return ResidentOf(p.running.cmd.Process.Pid)
}

// Peak returns the most resident memory that the process has had, in bytes; 0 if it does not run.
func (p *Process) Peak() int64 {
	if !p.Running() {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.running.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, peak, found := strings.Cut(string(text), "VmHWM:")
	if !found { // it has just ended
		return 0
	}
	kilobytes, _ := strconv.ParseInt(strings.Fields(peak)[0], 10, 64)
	return kilobytes << 10
}

// ForgetPeak lets Peak begin anew.
func (p *Process) ForgetPeak() error {
	if !p.Running() {
		return errors.New("the process does not run")
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.running.cmd.Process.Pid), []byte("5"), 0)
}

// ResidentOf returns the resident memory of any process in bytes; 0 if it does not run.
func ResidentOf(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// Disk returns the size of the files of the process in bytes, without its log.
func (p *Process) Disk() (sum int64) {
	_ = filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == p.log {
			return nil // a file may go meanwhile
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
