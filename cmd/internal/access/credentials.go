package access

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/seed18712806/lapse/sink/wire"
)

// The shortest and the longest token, in bytes.
const (
	shortest = 16
	longest  = 512
)

// Grant is what a client may do.
type Grant struct {
	Write       bool     // and not only read
	Collections []string // the only ones; all if nil
}

// Everything is the grant of a client that needs no token.
var Everything = Grant{Write: true}

// All reports whether the grant is for all collections.
func (g Grant) All() bool { return g.Collections == nil }

// Covers reports whether the grant is for a collection.
func (g Grant) Covers(collection string) bool {
	return g.All() || slices.Contains(g.Collections, collection)
}

// entry is a line of the file. It has a hash of the token, so that all comparisons are of the
// same length, and a dump of the memory shows no token.
type entry struct {
	hash  [sha256.Size]byte
	grant Grant
}

// Tokens are the tokens of a file.
type Tokens struct {
	path    string
	entries atomic.Pointer[[]entry]
}

// LoadTokens reads a file of tokens. Without a path there are none, so no client has a grant.
func LoadTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	return t, t.Reload()
}

// Reload reads the file again. After an error the tokens are as before.
func (t *Tokens) Reload() error {
	var content []byte
	if t.path != "" {
		var err error
		if content, err = os.ReadFile(t.path); err != nil {
			return err
		}
	}
	entries, err := parse(content)
	if err != nil {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	t.entries.Store(&entries)
	return nil
}

// parse reads the lines of a file. Its errors name the line, and never the token.
func parse(content []byte) (entries []entry, err error) {
	scanner := bufio.NewScanner(bytes.NewReader(content))
	for number := 1; scanner.Scan(); number++ {
		fields := strings.Fields(scanner.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		e, err := parseLine(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if slices.ContainsFunc(entries, func(other entry) bool { return other.hash == e.hash }) {
			return nil, fmt.Errorf("line %d: the token is on another line too: give each token one line", number)
		}
		entries = append(entries, e)
	}
	return entries, scanner.Err()
}

func parseLine(fields []string) (e entry, err error) {
	token := fields[0]
	visible := func(r rune) bool { return '!' <= r && r <= '~' }
	if len(token) < shortest || len(token) > longest || strings.TrimFunc(token, visible) != "" {
		return e, fmt.Errorf("the token has %d bytes: use %d to %d visible ASCII characters, such as the output of "+
			"openssl rand -hex 32", len(token), shortest, longest)
	}
	e.hash = sha256.Sum256([]byte(token))
	if len(fields) < 2 || len(fields) > 3 || fields[1] != "read-only" && fields[1] != "read-write" {
		return e, fmt.Errorf("after the token there must be read-only or read-write, and then at most a list of " +
			"collections, separated by commas without spaces")
	}
	e.grant.Write = fields[1] == "read-write"
	if len(fields) == 3 {
		e.grant.Collections = strings.Split(fields[2], ",")
		for _, c := range e.grant.Collections {
			if err := wire.CheckCollection(c); err != nil {
				return e, err
			}
		}
	}
	return e, nil
}

// Find returns the grant of a token. The time that it takes does not depend on the token.
func (t *Tokens) Find(token string) (g Grant, ok bool) {
	hash := sha256.Sum256([]byte(token))
	for _, e := range *t.entries.Load() {
		if subtle.ConstantTimeCompare(e.hash[:], hash[:]) == 1 {
			g, ok = e.grant, true // go on, or the time would tell which line it is
		}
	}
	return g, ok
}

// Certificate is the server's certificate and its private key, of two files.
type Certificate struct {
	cert, key string
	loaded    atomic.Pointer[tls.Certificate]
}

// LoadCertificate reads a certificate, with those of its authorities behind it, and the key.
func LoadCertificate(cert, key string) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key}
	return c, c.Reload()
}

// Reload reads the files again. After an error the certificate is as before.
func (c *Certificate) Reload() error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.loaded.Store(&pair)
	return nil
}

// Config is the configuration of a server with the certificate that was read last.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.loaded.Load(), nil
		},
	}
}
