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
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

const defaultServer = "nats://127.0.0.1:4222"

// Vars are the defaults that the tags of kong refer to.
var Vars = kong.Vars{
	"default_server": defaultServer,
	"default_prefix": string(wire.DefaultPrefix),
}

// Connection is the flags of every client command.
type Connection struct {
	Server    string    `env:"LAPSE_SERVER" group:"connection" placeholder:"URL"`
	Context   string    `env:"LAPSE_CONTEXT" group:"connection" placeholder:"NAME"`
	Prefix    string    `env:"LAPSE_PREFIX" group:"connection" default:"${default_prefix}" placeholder:"NAME"`
	Login     NATSLogin `embed:"" prefix:"nats-" envprefix:"LAPSE_NATS_" group:"connection"`
	NATSToken `embed:"" group:"connection"`
	Timeout   Period `env:"LAPSE_TIMEOUT" group:"connection" default:"5s" placeholder:"TIME"`
	Output    string `short:"o" env:"LAPSE_OUTPUT" enum:"text,json,yaml" default:"text" placeholder:"FORMAT"`

	given map[string]bool // the flags that the user gave
	yaml  bool            // the command prints YAML too
}

// Connect connects to the NATS server. It also returns the prefix of the subjects.
func (c *Connection) Connect(streams output.Streams) (*client.Client, wire.Prefix, error) {
	prefix, err := wire.ParsePrefix(c.Prefix)
	if err != nil {
		return nil, "", output.Usage(err)
	}
	if c.Output == "yaml" && !c.yaml {
		return nil, "", output.Usagef("--output yaml is for lapse config alone: use text or json")
	}
	if c.Timeout <= 0 {
		return nil, "", output.Usagef("--timeout %s is not valid: use a duration over 0 such as 5s", time.Duration(c.Timeout))
	}
	server, login, context, err := c.where()
	if err != nil {
		return nil, "", err
	}
	conn, err := client.Connect(client.Options{
		Server:  server,
		Prefix:  prefix,
		Login:   login,
		Timeout: time.Duration(c.Timeout),
		Notice:  streams.Notice,
	})
	if err != nil && context != "" {
		return nil, "", fmt.Errorf("%w (%s)", err, context)
	}
	if errors.Is(err, client.ErrUnavailable) {
		err = fmt.Errorf("%w (--server or LAPSE_SERVER%s)", err, c.hint())
	}
	return conn, prefix, err
}

// login is how the flags tell who connects.
func (c *Connection) login() credentials.NATS {
	login := credentials.NATS(c.Login)
	login.TokenFile = c.Token
	return login
}

// hint tells a user who has set the variable of serve alone that this command does not read it.
func (c *Connection) hint() string {
	if os.Getenv("LAPSE_NATS") == "" || cmp.Or(c.Server, defaultServer) != defaultServer {
		return ""
	}
	return "; LAPSE_NATS, which is set, is for lapse serve alone"
}

// JSON reports whether the command prints JSON.
func (c *Connection) JSON() bool { return c.Output == "json" }

// NATSLogin is the flags that tell a NATS server who connects: [credentials.NATS], with tags.
type NATSLogin struct {
	User         string `env:"USER" placeholder:"NAME"`
	PasswordFile string `env:"PASSWORD_FILE" type:"existingfile" placeholder:"FILE"`
	NKeyFile     string `name:"nkey-file" env:"NKEY_FILE" type:"existingfile" placeholder:"FILE"`
	Creds        string `aliases:"creds" env:"CREDS" type:"existingfile" placeholder:"FILE"`
	TokenFile    string `kong:"-"` // see NATSToken
	CA           string `aliases:"ca" env:"CA" type:"existingfile" placeholder:"FILE"`
	Cert         string `env:"CERT" type:"existingfile" placeholder:"FILE"`
	Key          string `env:"KEY" type:"existingfile" placeholder:"FILE"`
	InboxPrefix  string `env:"INBOX_PREFIX" placeholder:"SUBJECT"`
}

// NATSToken is the flag for the token of an embedded NATS server.
type NATSToken struct {
	Token string `name:"nats-token-file" env:"LAPSE_NATS_TOKEN_FILE" type:"existingfile" placeholder:"FILE"`
}

// RedisLogin is the flags that tell Redis who connects: [credentials.Redis], with tags.
type RedisLogin struct {
	User                 string `env:"USER" placeholder:"NAME"`
	PasswordFile         string `env:"PASSWORD_FILE" type:"existingfile" placeholder:"FILE"`
	CA                   string `env:"CA" type:"existingfile" placeholder:"FILE"`
	Cert                 string `env:"CERT" type:"existingfile" placeholder:"FILE"`
	Key                  string `env:"KEY" type:"existingfile" placeholder:"FILE"`
	SentinelUser         string `env:"SENTINEL_USER" placeholder:"NAME"`
	SentinelPasswordFile string `env:"SENTINEL_PASSWORD_FILE" type:"existingfile" placeholder:"FILE"`
}

// natsContext is a context of the command line tool of NATS, as that stores it (ADR-21).
type natsContext struct {
	URL, User, Password, Token, Creds, NKey, Cert, Key, CA string

	InboxPrefix string `json:"inbox_prefix"`
}

// unsupported are members of a context without which its server cannot be reached, or another
// JetStream would answer.
var unsupported = []string{
	"nsc", "user_jwt", "user_seed", "socks_proxy", "tls_first", "jetstream_domain", "jetstream_api_prefix",
	"windows_cert_store",
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

// Collection is the argument of a command about a collection.
type Collection struct {
	Name string `arg:"" name:"collection"`
}

func (c Collection) String() string { return c.Name }

// Check returns an error if the name is not valid.
func (c Collection) Check() error { return CheckCollection(c.Name) }

// CheckCollection returns an error if the name of a collection is not valid.
func CheckCollection(name string) error { return output.Usage(wire.CheckCollection(name)) }

// Target is the arguments of a command about a document.
type Target struct {
	Collection string `arg:""`
	ID         string `arg:"" name:"id"`
}

func (t Target) String() string { return t.Collection + "/" + output.Name(t.ID) }

// Check returns an error if a name is not valid.
func (t Target) Check() error {
	return output.Usage(errors.Join(wire.CheckCollection(t.Collection), wire.CheckID(t.ID)))
}

// print prints a result: as JSON the value, otherwise the text on a line.
func (c *Connection) print(streams output.Streams, value any, format string, args ...any) error {
	if c.JSON() {
		return output.PrintJSON(streams.Out, value)
	}
	_, err := fmt.Fprintf(streams.Out, format+"\n", args...)
	return err
}

// report prints the result of a message: as JSON its outcome as it came, as text what
// describe makes of it.
func report(
	c *Connection, streams output.Streams, result client.Result, target string, describe func(wire.Outcome) string,
) (err error) {
	switch {
	case result.Duplicate:
		return c.print(streams, map[string]any{"duplicate": true, "seq": result.Seq},
			"duplicate %s: the log has a message with this id (sequence %d): nothing is changed", target, result.Seq)
	case c.JSON():
		err = output.PrintJSON(streams.Out, result.Raw)
	case result.Outcome.Status < wire.StatusBadRequest:
		_, err = fmt.Fprintln(streams.Out, describe(result.Outcome))
		if warning := result.Outcome.Warning; warning != "" {
			streams.Warn(warning)
		}
	}
	if result.Outcome.Status >= wire.StatusBadRequest {
		status := result.Outcome.Status
		return output.Printed(output.Statusf(status, "%s: %d: %s", target, status, result.Outcome.Error))
	}
	return err
}

// read connects and sends one read about a collection or a document.
func read[Reply any](
	c *Connection, streams output.Streams, about interface{ Check() error }, send func(*client.Client) (Reply, error),
) (reply Reply, err error) {
	if err := about.Check(); err != nil {
		return reply, err
	}
	conn, _, err := c.Connect(streams)
	if err != nil {
		return reply, err
	}
	defer conn.Close()
	reply, err = send(conn)
	if err != nil {
		return reply, fmt.Errorf("%s: %w", about, err)
	}
	return reply, nil
}
