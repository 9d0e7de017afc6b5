package serve

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/seed18712806/lapse/cmd/internal/web"
)

// tokenFile is the file in the data directory with the tokens of the HTTP API, if the operator names no other.
const tokenFile = "http-tokens"

// tokens settles which file has the tokens of the HTTP API. The API of a process that has a data directory, listens
// where others can reach it, and was given no file, uses one in that directory. The first start makes a token for it,
// and prints it once.
func (p *process) tokens() (web.Options, error) {
	o := p.opts.HTTP
	if o.TokenFile != "" || !o.NeedsTokens() {
		return o, nil
	}
	if p.opts.NATS != "" {
		p.opts.Logger.Warn("no client may use the HTTP API, only /healthz, /readyz and /metrics answer: give a file of " +
			"tokens (--http-token-file)")
		return o, nil
	}
	o.TokenFile = filepath.Join(p.opts.Data, tokenFile)
	if _, err := os.Lstat(o.TokenFile); !errors.Is(err, fs.ErrNotExist) {
		return o, err
	}
	token := rand.Text()
	if err := writeSecret(o.TokenFile, token+" read-write\n"); err != nil {
		return o, fmt.Errorf("--data %s: make the first token of the HTTP API: %w", p.opts.Data, err)
	}
	p.opts.Logger.Warn("made a token for the HTTP API and the console: sign in with it, and keep it; it is printed once",
		slog.String("token", token), slog.String("file", o.TokenFile))
	return o, nil
}

// writeSecret writes a file that its owner alone can read. After a crash the file is there as a whole, or not at all.
func writeSecret(path, content string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, remove(f.Name()))
	}
	return err
}
