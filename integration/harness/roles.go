package harness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/programs"
)

// lapse runs in tests with the permissions that deploy/ gives it, and the clients of the
// tests are operators. A test fails if a server has denied lapse anything.
const (
	lapseUser     = "lapse"
	LapsePassword = "the-password-of-lapse-in-tests"
)

// natsRoles writes the accounts of deploy/ beside the configuration of a server, and returns
// the text that includes them. Unless it denies, a client without a user is the operator.
func (n *NATS) natsRoles(opts NATSOptions) string {
	n.t.Helper()
	n.accounts()
	if opts.Shards > 1 {
		n.copyDeployed("nats/shards-4.conf", "shards.conf", "partition(4,", fmt.Sprintf("partition(%d,", opts.Shards))
	} else {
		n.copyDeployed("nats/shards.conf", "shards.conf")
	}
	n.env = []string{"NATS_LAPSE_PASSWORD=" + LapsePassword}
	for _, other := range []string{"OPERATOR", "ORDERS_WRITER", "READER", "FORWARDER", "LEAF", "SYSTEM"} {
		n.env = append(n.env, "NATS_"+other+"_PASSWORD="+RolePassword(other))
	}
	text := "authorization { timeout: 60 }\ninclude \"accounts.conf\"\n" // a busy machine needs longer than 2 s
	if opts.Denies {
		return text
	}
	n.forbidden = []string{`user:lapse" - Publish Violation`, `user:lapse" - Subscription Violation`}
	return text + "no_auth_user: operator\n"
}

// Deny takes a permission from lapse: an entry of accounts.conf, with its quotes. The server
// reads its configuration anew.
func (n *NATS) Deny(entry string) {
	n.t.Helper()
	n.forbidden = nil
	n.accounts(entry, `"none"`)
	n.Reload()
}

// Permit gives lapse all its permissions again.
func (n *NATS) Permit() {
	n.t.Helper()
	n.accounts()
	n.Reload()
}

// accounts writes the accounts of deploy/ with replacements. Regions may have other names than there, and there may be
// more than two.
func (n *NATS) accounts(replacements ...string) {
	n.copyDeployed("nats/accounts.conf", "accounts.conf", append([]string{
		`"$JS.a.API.`, `"$JS.*.API.`, `"$JS.b.API.`, `"$JS.*.API.`, `"lapse.region.a"`, `"lapse.region.*"`,
		`"lapse.region.b"`, `"lapse.region.*"`,
	}, replacements...)...)
}

// RolePassword is the password of a user of the servers that tests start.
func RolePassword(role string) string { return "p-" + strings.ToLower(role) }

// redisRoles writes the users of deploy/ for a server, and returns the arguments with them.
// Unless it denies, a client without a user may do everything.
func (r *Redis) redisRoles(denies bool) []string {
	r.t.Helper()
	hash := func(password string) string {
		sum := sha256.Sum256([]byte(password))
		return hex.EncodeToString(sum[:])
	}
	anybody := "default on nopass ~* &* +@all"
	if denies {
		anybody = "default off"
	}
	r.copyDeployed("redis/users.acl", "users.acl", "default off", anybody, "LAPSE_SHA256", hash(LapsePassword),
		"READER_SHA256", hash(RolePassword("READER")), "OPERATOR_SHA256", hash(RolePassword("OPERATOR")),
		"REPLICA_SHA256", hash(RolePassword("REPLICA")))
	if !denies {
		r.t.Cleanup(r.deniedNothing) // before the server is killed
	}
	return []string{"--aclfile", filepath.Join(r.dir, "users.acl")}
}

// deniedNothing fails the test if the server has denied lapse something.
func (r *Redis) deniedNothing() {
	if !r.Running() {
		return
	}
	client := redis.NewClient(redisOptions(r.Address()))
	defer client.Close()
	entries, err := client.ACLLog(context.Background(), 10).Result()
	if err != nil {
		return // it stands still, or was told to answer nothing
	}
	for _, e := range entries {
		if e.Username == lapseUser {
			r.t.Errorf("Redis denied lapse: %s %s in %s", e.Reason, e.Object, e.Context)
		}
	}
}

// copyDeployed copies a file of deploy/ to the directory of a process, with replacements.
func (p *Process) copyDeployed(from, to string, replacements ...string) {
	p.t.Helper()
	content, err := os.ReadFile(filepath.Join(DeployDir(p.t), from))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(string(content), replacements[i]) {
			p.t.Fatalf("deploy/%s does not have %s", from, replacements[i])
		}
	}
	text := strings.NewReplacer(replacements...).Replace(string(content))
	if err := os.WriteFile(filepath.Join(p.dir, to), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// DeployDir is the directory deploy/ of the module.
func DeployDir(t testing.TB) string {
	t.Helper()
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "deploy")
}

// asLapse is the flags by which lapse connects as its own users, for the servers that its
// other flags name without a user.
func asLapse(t testing.TB, flags []string) (more []string) {
	t.Helper()
	file := ""
	for i, flag := range flags {
		if flag != "--nats" && flag != "--redis" || strings.Contains(flags[i+1], "@") {
			continue
		}
		if file == "" {
			file = filepath.Join(t.TempDir(), "password")
			if err := os.WriteFile(file, []byte(LapsePassword+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		more = append(more, flag+"-user", lapseUser, flag+"-password-file", file)
	}
	return more
}

// natsAsLapse and redisAsLapse do the same for a processor inside of a test.
func natsAsLapse() nats.Option { return nats.UserInfo(lapseUser, LapsePassword) }

func redisAsLapse(t testing.TB, address string) *redis.Client {
	options := redisOptions(address)
	options.Username, options.Password = lapseUser, LapsePassword
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
