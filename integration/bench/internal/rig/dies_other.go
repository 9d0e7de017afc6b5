//go:build !linux

package rig

import "syscall"

// diesWithParent needs Linux; elsewhere a bench that is killed leaves its servers.
func diesWithParent() *syscall.SysProcAttr { return nil }
