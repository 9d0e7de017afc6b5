package held

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// cutIn are the operations within which the process loses its connections, once each: LAPSE_HELD_CUT names them, with
// commas. A name may end with *.
var cutIn = strings.FieldsFunc(os.Getenv("LAPSE_HELD_CUT"), func(r rune) bool { return r == ',' })

// mayCut reports whether the connections are to be lost within an operation.
func mayCut(operation string) bool {
	for _, name := range cutIn {
		if begin, some := strings.CutSuffix(name, "*"); name == operation || some && strings.HasPrefix(operation, begin) {
			return true
		}
	}
	return false
}

// LoseConnections ends each connection that the process has made to a server.
func LoseConnections() {
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		panic(err)
	}
	listens := map[int]bool{} // by port
	made := map[int]int{}     // the port of the process, by descriptor
	for _, path := range fds {
		fd, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			panic(err)
		}
		name, err := syscall.Getsockname(fd)
		port, ok := portOf(name)
		if err != nil || !ok {
			continue
		}
		if accepts, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN); err == nil && accepts == 1 {
			listens[port] = true
			continue
		}
		if peer, err := syscall.Getpeername(fd); err == nil {
			if _, ok := portOf(peer); ok {
				made[fd] = port
			}
		}
	}
	for fd, port := range made {
		if !listens[port] {
			_ = syscall.Shutdown(fd, syscall.SHUT_RDWR) // or it is closed by now
		}
	}
}

// portOf returns the port of an address of TCP; ok is false for others.
func portOf(a syscall.Sockaddr) (port int, ok bool) {
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		return a.Port, true
	case *syscall.SockaddrInet6:
		return a.Port, true
	}
	return 0, false
}
