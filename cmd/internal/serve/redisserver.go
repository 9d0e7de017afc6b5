package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/seed18712806/lapse/sink/embedded"
)

// passwordFile is the file in the data directory with the password of the embedded Redis, while that
// listens. Each start makes a new one.
const passwordFile = "redis-password"

// startRedis starts a Redis in this process. It keeps everything in memory and forgets it
// at the end; the processor rebuilds it from the log. It listens only with Options.RedisListen.
func (p *process) startRedis() (dial func(ctx context.Context, network, address string) (net.Conn, error), err error) {
	s := embedded.New(p.opts.Logger)
	p.opened(func() error { s.Close(); return nil })
	if p.opts.RedisListen == "" {
		return s.Dial, nil
	}
	path := filepath.Join(p.opts.Data, passwordFile)
	password, err := writePassword(path)
	if err != nil {
		return nil, fmt.Errorf("--redis-listen %s: the password cannot be written: %w", p.opts.RedisListen, err)
	}
	p.opened(func() error { return remove(path) })
	if err := s.Listen(p.opts.RedisListen, password); err != nil {
		return nil, fmt.Errorf("--redis-listen %s: %w", p.opts.RedisListen, unwrapOp(err))
	}
	p.at.Redis = "redis://" + s.Addr()
	return s.Dial, nil
}

// writePassword makes a password, and a file with it that only the user of this process can read.
func writePassword(path string) (password string, err error) {
	if err := remove(path); err != nil { // of a process that was killed; others may be able to read it
		return "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	password = rand.Text()
	_, err = f.WriteString(password + "\n")
	return password, errors.Join(err, f.Close())
}

// remove removes a file, if it is there.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
