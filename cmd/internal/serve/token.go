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
		p.opts.Logger.Warn("no client may use the HTTP API, only /healthz, /readyz and /metrics answer: give a file of tokens (--http-token-file)")
		return o, nil
	}
	o.TokenFile = filepath.Join(p.opts.Data, tokenFile)
	f, err := os.OpenFile(o.TokenFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return o, nil
	}
	if err != nil {
		return o, fmt.Errorf("--data %s: make the first token of the HTTP API: %w", p.opts.Data, err)
	}
	token := rand.Text()
	_, err = f.WriteString(token + " read-write\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return o, errors.Join(fmt.Errorf("--data %s: make the first token of the HTTP API: %w", p.opts.Data, err), remove(o.TokenFile))
	}
	p.opts.Logger.Info("made a token for the HTTP API and the console: sign in with it, and keep it; it is printed once",
		slog.String("token", token), slog.String("file", o.TokenFile))
	return o, nil
}
