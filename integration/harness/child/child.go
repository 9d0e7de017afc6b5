// Package child starts the processes of tests, which end with the test binary. It imports nothing
// of lapse, so the tests of every package can use it.
package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Goroutine is the function that never ends once a process was started: a check for goroutines
// has to leave it out.
const Goroutine = "github.com/seed18712806/lapse/integration/harness/child.run"

// Start starts a command. The kernel kills the process when the test binary ends, however that
// ends.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error, 1)
	starter() <- func() { result <- cmd.Start() }
	return <-result
}

// starter starts processes on a thread that lives as long as the test binary. Linux
// sends a Pdeathsig when the thread ends that started the process.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go run(work)
	return work
})

func run(work <-chan func()) {
	runtime.LockOSThread()
	for do := range work {
		do()
	}
}
