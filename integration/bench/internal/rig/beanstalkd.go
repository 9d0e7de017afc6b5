package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// Beanstalkd is a beanstalkd (Debian package beanstalkd).
type Beanstalkd struct {
	*Process
	addr string
}

// StartBeanstalkd starts a beanstalkd that keeps nothing on disk.
func (r *Rig) StartBeanstalkd(ctx context.Context) (*Beanstalkd, error) {
	dir, err := r.Folder("beanstalkd")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &Beanstalkd{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	if s.Process, err = start("beanstalkd", dir, "beanstalkd", "-l", "127.0.0.1", "-p", strconv.Itoa(port)); err != nil {
		return nil, fmt.Errorf("%w: install the Debian package beanstalkd", err)
	}
	err = s.wait(ctx, func(ctx context.Context) error {
		conn, err := s.Dial(ctx)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Dial makes a connection.
func (s *Beanstalkd) Dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", s.addr)
}

// Memory returns the bytes of memory that the process has.
func (p *Process) Memory() int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(status))
	pages, _ := strconv.Atoi(fields[1])
	return pages * os.Getpagesize()
}
