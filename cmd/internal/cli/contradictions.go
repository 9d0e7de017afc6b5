package cli

import (
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

// contradiction is an error about flags of serve that do not go together.
type contradiction struct{ error }

func (e contradiction) Unwrap() error { return e.error }

// server is a server that lapse either embeds or is given, and the flags that only one of the two
// has a use for.
type server struct {
	flag, name string
	embedded   []string // flags that are about the embedded server
	given      []string // flags that are about a server that is given
}

var servers = []server{
	{
		flag: "nats", name: "NATS server", embedded: []string{"data", "nats-listen", "nats-sync", "nats-token-file"},
		given: []string{"nats-user", "nats-password-file", "nats-nkey-file", "nats-creds", "nats-ca", "nats-cert", "nats-key", "nats-inbox-prefix", "nats-sync-interval", "replicas"},
	},
	{
		flag: "redis", name: "Redis", embedded: []string{"redis-listen"},
		given: []string{"redis-user", "redis-password-file", "redis-ca", "redis-cert", "redis-key", "redis-sentinel-user", "redis-sentinel-password-file"},
	},
}

// contradict returns an error if flags are about an embedded server and about one that is given.
// A flag may also come from the environment, where it may have been set for something else: to
// pass over it could change the data of the wrong server.
func contradict(flags []*kong.Flag, path []*kong.Path) error {
	from := origins(flags, path)
	nats, listen := from["nats"], from["redis-listen"]
	if _, isGiven := from["redis"]; nats != "" && listen != "" && !isGiven {
		return contradiction{output.Usagef("%s names a NATS server, so there is no data directory for the password that %s needs. Leave out one of them, or run a redis-server and name it with --redis", nats, listen)}
	}
	for _, s := range servers {
		where, isGiven := from[s.flag]
		contrary := s.given
		if isGiven {
			contrary = s.embedded
		}
		var these []string
		for _, name := range contrary {
			if origin, ok := from[name]; ok {
				these = append(these, origin)
			}
		}
		if len(these) == 0 {
			continue
		}
		list := strings.Join(these, ", ")
		if isGiven {
			return contradiction{output.Usagef("%s names a %s, but these are for the embedded one: %s. Leave out the one or the others (--%s '' embeds one, whatever the environment says)",
				where, s.name, list, s.flag)}
		}
		return contradiction{output.Usagef("these are for a %s that is not embedded: %s. Name one (--%s or LAPSE_%s), or leave these out",
			s.name, list, s.flag, strings.ToUpper(s.flag))}
	}
	return nil
}

// origins says where each flag that has a value gets it from. A default is no value, and neither
// are "" and false.
func origins(flags []*kong.Flag, path []*kong.Path) map[string]string {
	from := make(map[string]string)
	for _, flag := range flags {
		empty := flag.Target.IsZero() && !strings.HasPrefix(flag.Name, "nats-sync") // there, "always" is 0
		if empty || flag.Name == "replicas" && flag.Target.Equal(reflect.ValueOf(1)) {
			continue // one replica is what an embedded server has too
		}
		if slices.ContainsFunc(path, func(p *kong.Path) bool { return p.Flag == flag }) {
			from[flag.Name] = "the flag --" + flag.Name
			continue
		}
		for _, variable := range flag.Envs {
			if os.Getenv(variable) != "" {
				from[flag.Name] = "the environment variable " + variable
			}
		}
	}
	return from
}
