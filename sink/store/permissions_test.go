package store_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// With the permissions of deploy/redis/users.acl a server passes the check. Without any one
// of the commands there it does not, and the error names the command.
//
// It goes red if lapse needs a command that the check does not know, or the other way round.
func TestCheck_Permissions(t *testing.T) {
	content, err := os.ReadFile("../../deploy/redis/users.acl")
	if err != nil {
		t.Fatal(err)
	}
	var rules []any
	var commands []string
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if fields[1] != "lapse" {
			continue
		}
		for _, rule := range fields[2:] {
			switch {
			case strings.HasPrefix(rule, "#"):
				rule = ">password"
			case strings.HasPrefix(rule, "+"):
				commands = append(commands, rule[1:])
			}
			rules = append(rules, rule)
		}
	}
	s := redistest.Start(t, "--appendonly", "yes")
	admin := s.Client
	if err := admin.Save(t.Context()).Err(); err != nil { // so it has both files
		t.Fatal(err)
	}
	set := func(rules ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "lapse"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set(rules...)
	options := *admin.Options()
	options.Username, options.Password = "lapse", "password"
	client := redis.NewClient(&options)
	defer client.Close()
	st := store.New(client, wire.DefaultPrefix, 0, 1)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Username: "lapse", Password: "password", Dialer: options.Dialer,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: options.Addr}}}}, nil
		},
	})
	defer cluster.Close()
	ofCluster := store.New(cluster, wire.DefaultPrefix, 0, 1)
	for _, st := range []*store.Shard{st, ofCluster} {
		if err := st.Check(t.Context()); err != nil {
			t.Errorf("with all permissions: %v", err)
		}
	}
	for _, command := range commands {
		switch command {
		case "command", "cluster|slots": // the client of a cluster needs these
			continue
		case "bgrewriteaof", "bgsave": // lapse goes on without these, and warns
			set("-" + command)
			if err := store.New(client, "p", 0, 1).Rewrite(t.Context()); !errors.Is(err, store.ErrDenied) ||
				!strings.Contains(err.Error(), command) {
				t.Errorf("without %s: %v", command, err)
			}
			set("+" + command)
			continue
		}
		if command == "eval" { // only where the server does not know the script
			if err := admin.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		set("-" + command)
		if err := ofCluster.Check(t.Context()); !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), command) {
			t.Errorf("without %s: %v", command, err)
		}
		if err := st.Check(t.Context()); (err == nil) != (command == "asking") {
			t.Errorf("one server, without %s: %v", command, err)
		}
		set("+" + command)
	}
	set("resetkeys", "~other:*")
	if err := st.Check(t.Context()); !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), "hset") {
		t.Errorf("with other keys: %v", err)
	}
	set("resetkeys", "~lapse:*")
	if err := st.Check(t.Context()); err != nil {
		t.Errorf("with all permissions again: %v", err)
	}
}
