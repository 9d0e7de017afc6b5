package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/deployed"
)

// TestDeployment_Renewal: every secret is replaced while lapse runs: the authority, all certificates and all passwords.
// lapse is not started again, and goes on with the new ones.
//
// It goes red if lapse reads a password, a certificate or an authority only once, or if a
// server does not take up what deploy/docs/security.md says that it does.
func TestDeployment_Renewal(t *testing.T) {
	t.Parallel()
	d := deployed.Start(t)
	l := d.Prepare()
	l.Start()
	if out, errOut, code := d.Run("operator", "config", "orders", "--default-ttl", "-1"); code != 0 {
		t.Fatalf("lapse config: exit code %d\n%s%s", code, out, errOut)
	}
	old, err := d.Connect("reader").TLSConnectionState()
	if err != nil {
		t.Fatal(err)
	}
	operator := d.Operator()
	if err := operator.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	d.Renew()

	// Redis: certificates and users, without a restart.
	for _, command := range [][]any{
		{"CONFIG", "SET", "tls-ca-cert-file", d.Path("ca.crt"), "tls-cert-file", d.Path("redis.crt"), "tls-key-file",
			d.Path("redis.key")},
		{"ACL", "LOAD"},
	} {
		if err := operator.Do(t.Context(), command...).Err(); err != nil {
			t.Fatalf("%v: %v", command, err)
		}
	}
	if err := d.Operator().Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err(); err != nil {
		t.Fatal(err)
	}
	// NATS: certificates by a reload. Passwords are in the environment of the servers here,
	// so these start again, one after the other.
	for _, n := range d.NATS {
		n.Reload()
	}
	for _, n := range d.NATS {
		n.Kill()
		n.Start()
	}
	fresh, err := d.Connect("reader").TLSConnectionState()
	if err != nil {
		t.Fatal(err)
	}
	if old.PeerCertificates[0].Equal(fresh.PeerCertificates[0]) {
		t.Error("a nats-server has the old certificate")
	}
	harness.Until(t, harness.Limit, "the writer writes", func(context.Context) error { // once the streams have leaders
		if out, errOut, code := d.Run("orders-writer", "put", "orders", "1", `{"ttl":1}`); code != 0 {
			return fmt.Errorf("exit code %d: %s%s", code, out, errOut)
		}
		return nil
	})
	if out, errOut, code := d.Run("reader", "watch", "orders", "1", "--since", "1h", "--count", "1"); code != 0 {
		t.Fatalf("lapse watch: exit code %d\n%s%s", code, out, errOut)
	}
	l.Ready()
}

// TestSecretsAreShownNowhere: no secret is in a log, an error, /metrics, /readyz or the list of processes: not one that
// is right, and not one that is wrong or cannot be read as what it should be.
//
// It goes red if an error prints the content of a file or the password of a URL.
func TestSecretsAreShownNowhere(t *testing.T) {
	t.Parallel()
	d := deployed.Start(t)
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	const wrong, jwt = "a-wrong-password", "eyJ0eXAiOiJKV1QifQ.eyJhLXdyb25nIjoxfQ.c2lnbmF0dXJl"
	secrets := []string{wrong, jwt, string(seed)}
	files, err := filepath.Glob(d.Path("*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if content := d.Secret(filepath.Base(file)); strings.HasSuffix(file, ".password") {
			secrets = append(secrets, content)
		} else if strings.HasSuffix(file, ".key") {
			secrets = append(secrets, strings.Split(content, "\n")[1])
		}
	}
	if len(secrets) < 15 {
		t.Fatalf("%d secrets", len(secrets))
	}
	shown := func(where, text string) {
		t.Helper()
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %q:\n%s", where, secret, text)
			}
		}
	}
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	creds := "-----BEGIN NATS USER JWT-----\n" + jwt + "\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY " +
		"SEED-----\n" + string(seed) + "\n------END USER NKEY SEED------\n"

	for name, change := range map[string][]string{
		"a wrong password for NATS":  {"LAPSE_NATS_PASSWORD_FILE=" + file(wrong)},
		"a wrong password for Redis": {"LAPSE_REDIS_PASSWORD_FILE=" + file(wrong)},
		"a wrong nkey": {"LAPSE_NATS_USER=", "LAPSE_NATS_PASSWORD_FILE=", "LAPSE_NATS_NKEY_FILE=" +
			file(string(seed))},
		"wrong credentials": {"LAPSE_NATS_USER=", "LAPSE_NATS_PASSWORD_FILE=", "LAPSE_NATS_CREDS=" +
			file(creds)},
		"a password in place of an nkey": {"LAPSE_NATS_USER=", "LAPSE_NATS_PASSWORD_FILE=", "LAPSE_NATS_NKEY_FILE=" +
			file(wrong)},
		"a seed in place of credentials": {"LAPSE_NATS_USER=", "LAPSE_NATS_PASSWORD_FILE=", "LAPSE_NATS_CREDS=" +
			file(string(seed))},
		"a password in place of a key":    {"LAPSE_NATS_KEY=" + file(wrong)},
		"the key of another certificate":  {"LAPSE_REDIS_KEY=" + d.Path("reader.key")},
		"a key in place of a certificate": {"LAPSE_REDIS_CERT=" + d.Path("lapse.key")},
		"a key in place of an authority":  {"LAPSE_NATS_CA=" + d.Path("ca.key")},
		"a wrong password in the NATS URL": {"LAPSE_NATS_USER=", "LAPSE_NATS_PASSWORD_FILE=", "LAPSE_NATS=" +
			strings.ReplaceAll(d.URLs(), "//", "//lapse:"+wrong+"@")},
		"a wrong password in the Redis URL": {"LAPSE_REDIS_USER=", "LAPSE_REDIS_PASSWORD_FILE=",
			"LAPSE_REDIS=rediss://lapse:" + wrong + "@" + d.Redis.Address()},
		"users in the NATS URL and a flag": {"LAPSE_NATS=" + strings.ReplaceAll(d.URLs(), "//", "//lapse:"+wrong+"@")},
	} {
		l := d.Prepare("--log-level", "debug")
		l.Env = append(l.Env, change...)
		log := l.FailsToStart()
		shown(name, log)
		if last := strings.Split(strings.TrimSpace(log), "\n"); !strings.HasPrefix(last[len(last)-1], "lapse: ") {
			t.Errorf("%s: the log ends with %q, want one line of lapse", name, last[len(last)-1])
		}
	}

	l := d.Prepare("--log-level", "debug")
	l.Env = append(l.Env, "LAPSE_NATS_USER=", "LAPSE_NATS_PASSWORD_FILE=", "LAPSE_REDIS_USER=",
		"LAPSE_REDIS_PASSWORD_FILE=",
		"LAPSE_NATS="+strings.ReplaceAll(d.URLs(), "//", "//lapse:"+d.Secret("nats-lapse.password")+"@"),
		"LAPSE_REDIS=rediss://lapse:"+d.Secret("redis-lapse.password")+"@"+d.Redis.Address())
	inFiles := d.Prepare("--log-level", "debug")
	for _, one := range []*harness.Lapse{l, inFiles} {
		one.Start()
		shown("/metrics", one.Metrics())
		shown("the list of processes", one.CommandLine())
	}
	for _, user := range []string{"orders-writer", "reader"} {
		out, errOut, _ := d.Run(user, "put", "users", "1", "{}")
		shown("lapse put", out+errOut)
	}
	d.Redis.Kill()
	for _, n := range d.NATS {
		n.Kill()
	}
	for _, one := range []*harness.Lapse{l, inFiles} {
		unready(t, one, "there is no connection to NATS")
		if err := one.ReadyNow(t.Context()); err != nil {
			shown("/readyz", err.Error())
		}
		shown("/metrics", one.Metrics())
		one.Terminate()
		shown("the log", one.Log())
	}
}
