package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/credentials"
)

// natsContext is a context of the command line tool of NATS, as that stores it (ADR-21).
type natsContext struct {
	URL, User, Password, Token, Creds, NKey, Cert, Key, CA string

	InboxPrefix string `json:"inbox_prefix"`
}

// unsupported are members of a context without which its server cannot be reached, or another
// JetStream would answer.
var unsupported = []string{
	"nsc", "user_jwt", "user_seed", "socks_proxy", "tls_first", "jetstream_domain", "jetstream_api_prefix", "windows_cert_store",
}

// natsConfig is the folder of the configuration of that tool.
func natsConfig() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "nats"), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".config", "nats"), err
}

// selectedContext is the name of the context that the user has selected there; "" if there is none.
func selectedContext() string {
	if name := os.Getenv("NATS_CONTEXT"); name != "" {
		return name
	}
	dir, err := natsConfig()
	if err != nil {
		return ""
	}
	text, _ := os.ReadFile(filepath.Join(dir, "context.txt"))
	return strings.TrimSpace(string(text))
}

// readContext reads a context by its name, or by the absolute path of its file.
func readContext(name string) (c natsContext, err error) {
	fail := func(format string, args ...any) (natsContext, error) { return c, fmt.Errorf(format, args...) }
	dir, err := natsConfig()
	if err != nil {
		return fail("%w", err)
	}
	path := name
	if !filepath.IsAbs(name) {
		if path = filepath.Join(dir, "context", name+".json"); filepath.Base(path) != name+".json" {
			return fail("%q is not the name of a context", name)
		}
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return fail("there is no context %s: no file %s%s", output.Name(name), path, didYouMean(name, knownContexts(dir)))
	} else if err != nil {
		return fail("%w", err)
	}
	var members map[string]any
	if err := cmp.Or(json.Unmarshal(text, &members), json.Unmarshal(text, &c)); err != nil {
		return fail("%s: %w", path, err)
	}
	for _, member := range unsupported {
		if value := members[member]; value != nil && value != "" && value != false {
			return fail("%s: lapse does not know its member %q: use a context without it", path, member)
		}
	}
	for _, file := range []*string{&c.Creds, &c.NKey, &c.Cert, &c.Key, &c.CA} {
		*file = os.ExpandEnv(strings.TrimPrefix(*file, "file://"))
		if rest, ok := strings.CutPrefix(*file, "~"); ok {
			home, err := os.UserHomeDir()
			if err != nil {
				return fail("%w", err)
			}
			*file = home + rest
		}
		if scheme, _, ok := strings.Cut(*file, "://"); ok {
			return fail("%s: lapse does not read credentials by %s://: use the path of a file", path, scheme)
		}
	}
	return c, nil
}

// knownContexts lists the contexts of a user.
func knownContexts(dir string) (names []string) {
	files, _ := filepath.Glob(filepath.Join(dir, "context", "*.json"))
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	return names
}

// login is how the context tells who connects. A password or a token, which is in the context itself,
// goes into the URLs.
func (c natsContext) login(urls string) (string, credentials.NATS) {
	login := credentials.NATS{CA: c.CA, Cert: c.Cert, Key: c.Key, InboxPrefix: c.InboxPrefix}
	var user *url.Userinfo
	switch {
	case c.User != "":
		user = url.UserPassword(c.User, c.Password)
	case c.Creds != "":
		login.Creds = c.Creds
	case c.NKey != "":
		login.NKeyFile = c.NKey
	case c.Token != "":
		user = url.User(c.Token)
	}
	if user == nil {
		return urls, login
	}
	all := strings.Split(urls, ",")
	for i, one := range all {
		one = strings.TrimSpace(one)
		if !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		if u, err := url.Parse(one); err == nil && u.User == nil {
			u.User = user
			all[i] = u.String()
		}
	}
	return strings.Join(all, ","), login
}

// AfterApply notes, for kong, which flags the user gave.
func (c *Connection) AfterApply(parsed *kong.Context) error {
	c.given = make(map[string]bool)
	for _, path := range parsed.Path {
		if path.Flag != nil {
			c.given[path.Flag.Name] = true
		}
	}
	return nil
}

// where returns the URLs of the server, the login, and from which context they come; "" if they come
// from flags and variables alone. Flags go before a context that the user names, and that goes before
// variables. The context that is selected counts if nothing else names a server or a login. A login is
// never put together from two sources.
func (c *Connection) where() (server string, login credentials.NATS, from string, err error) {
	server, login = cmp.Or(c.Server, defaultServer), c.login() // LAPSE_SERVER may be set to nothing
	name, hint := c.Context, "; --context and --server name others"
	if name == "" && !c.given["context"] && c.Server == "" && login == (credentials.NATS{}) {
		name, hint = selectedContext(), ", which is selected; --context '' is for none"
	}
	if name == "" {
		return server, login, "", nil
	}
	from = "NATS context " + output.Name(name) + hint
	found, err := readContext(name)
	if err != nil {
		return "", login, from, output.Usagef("%w (%s)", err, from)
	}
	if !c.given["server"] {
		server = cmp.Or(found.URL, defaultServer)
	}
	for flag := range c.given {
		if strings.HasPrefix(flag, "nats-") {
			return server, login, from, nil
		}
	}
	server, login = found.login(server)
	return server, login, from, nil
}
