package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Connection is the flags that every client command has.
type Connection struct {
	Server  string        `env:"LAPSE_NATS" group:"connection" default:"${default_server}" placeholder:"URL" help:"NATS server that lapse uses (${default})."`
	Prefix  string        `env:"LAPSE_PREFIX" group:"connection" default:"${default_prefix}" placeholder:"NAME" help:"Prefix of the subjects (${default})."`
	Creds   string        `env:"LAPSE_NATS_CREDS" group:"connection" type:"existingfile" placeholder:"FILE" help:"NATS credentials."`
	CA      string        `name:"ca" env:"LAPSE_NATS_CA" group:"connection" type:"existingfile" placeholder:"FILE" help:"Certificates to trust, for a tls:// URL (instead of the system's)."`
	Timeout time.Duration `env:"LAPSE_TIMEOUT" group:"connection" default:"5s" placeholder:"TIME" help:"How long to wait for an answer (${default})."`
	Output  string        `short:"o" env:"LAPSE_OUTPUT" enum:"text,json" default:"text" placeholder:"FORMAT" help:"Print ${enum} (${default})."`
}

// connect connects, and gives the prefix that the subjects are made with.
func (c *Connection) connect(streams Streams) (*client.Client, wire.Prefix, error) {
	prefix, err := wire.ParsePrefix(c.Prefix)
	if err != nil {
		return nil, "", err
	}
	if c.Timeout <= 0 {
		return nil, "", fmt.Errorf("--timeout %s: allowed is a duration over 0 such as 5s", c.Timeout)
	}
	conn, err := client.Connect(client.Options{
		Server:  cmp.Or(c.Server, vars["default_server"]), // LAPSE_NATS may be set, and empty
		Prefix:  prefix,
		Creds:   c.Creds,
		CA:      c.CA,
		Timeout: c.Timeout,
		Notice:  func(text string) { _, _ = fmt.Fprintln(streams.Err, "lapse: "+text) },
	})
	return conn, prefix, err
}

func (c *Connection) json() bool { return c.Output == "json" }

// printJSON prints a value on one line, the documents in it as they are but for
// white space.
func printJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}
