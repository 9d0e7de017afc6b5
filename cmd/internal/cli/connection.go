package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
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
	Server  string    `env:"LAPSE_SERVER" group:"connection" placeholder:"URL"`
	Context string    `env:"LAPSE_CONTEXT" group:"connection" placeholder:"NAME"`
	Prefix  string    `env:"LAPSE_PREFIX" group:"connection" default:"${default_prefix}" placeholder:"NAME"`
	Login   NATSLogin `embed:"" group:"connection"`
	Token   string    `name:"nats-token-file" env:"LAPSE_NATS_TOKEN_FILE" group:"connection" type:"existingfile" placeholder:"FILE"`
	Timeout Period    `env:"LAPSE_TIMEOUT" group:"connection" default:"5s" placeholder:"TIME"`
	Output  string    `short:"o" env:"LAPSE_OUTPUT" enum:"text,json,yaml" default:"text" placeholder:"FORMAT"`

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
		Notice:  func(text string) { _, _ = fmt.Fprintln(streams.Err, "lapse: "+text) },
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
	login := c.Login.Credentials()
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
