package rig

import "syscall"

// diesWithParent makes the kernel kill a server when this program ends, however it ends.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
