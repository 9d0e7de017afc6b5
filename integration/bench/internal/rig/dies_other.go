//go:build !linux

package rig

import "syscall"

// diesWithParent needs Linux. On other systems a bench that is killed leaves its servers.
func diesWithParent() *syscall.SysProcAttr { return nil }
