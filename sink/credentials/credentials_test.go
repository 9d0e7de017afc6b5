package credentials_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/credentials"
)

const secret = "s3cret-in-a-file"

// write makes a file for a test.
func write(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantError fails the test unless an error has the parts, on one line and without the secret.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q, want it to have %q", err, part)
		}
	}
	if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has the secret or several lines", err)
	}
}

// What contradicts itself, and every file that is missing, empty or wrong, is refused with
// an error that names the flag. It goes red if a check is dropped, or if an error shows the
// content of a file.
func TestNATS_Refuses(t *testing.T) {
	missing, empty, wrong := filepath.Join(t.TempDir(), "missing"), write(t, "\n"+secret), write(t, secret)
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	text, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	seed := write(t, "-----BEGIN USER NKEY SEED-----\n"+string(text)+"\n------END USER NKEY SEED------\n")
	jwt := write(t, "-----BEGIN NATS USER JWT-----\n"+secret+".e30.c2ln\n------END NATS USER JWT------\n")
	for name, c := range map[string]struct {
		urls  string
		login credentials.NATS
		want  []string
	}{
		"a user and an nkey": {"", credentials.NATS{User: "u", PasswordFile: wrong, NKeyFile: wrong},
			[]string{"--nats-user and --nats-nkey-file exclude each other"}},
		"a user and credentials": {"", credentials.NATS{User: "u", PasswordFile: wrong, Creds: wrong},
			[]string{"--nats-user and --nats-creds exclude each other"}},
		"a user and a token": {"", credentials.NATS{User: "u", PasswordFile: wrong, TokenFile: wrong},
			[]string{"--nats-user and --nats-token-file exclude each other"}},
		"a token that is missing": {"", credentials.NATS{TokenFile: missing}, []string{"--nats-token-file",
			missing}},
		"an empty token": {"", credentials.NATS{TokenFile: empty}, []string{"--nats-token-file",
			"its first line is empty"}},
		"a user without a password": {"", credentials.NATS{User: "u"}, []string{"--nats-user needs " +
			"--nats-password-file"}},
		"a password without a user": {"", credentials.NATS{PasswordFile: wrong}, []string{"--nats-password-file " +
			"needs --nats-user"}},
		"a certificate without a key": {"", credentials.NATS{Cert: wrong}, []string{"--nats-cert needs --nats-key"}},
		"a key without a certificate": {"", credentials.NATS{Key: wrong}, []string{"--nats-key needs --nats-cert"}},
		"a user in the second URL": {"nats://a,nats://x:y@b", credentials.NATS{User: "u", PasswordFile: wrong},
			[]string{"--nats-user", "the URL has a user"}},
		"a token in the URL": {"nats://token@a", credentials.NATS{NKeyFile: wrong}, []string{"--nats-nkey-file",
			"the URL has a user"}},
		"a password file that is missing": {"", credentials.NATS{User: "u", PasswordFile: missing},
			[]string{"--nats-password-file", missing}},
		"a password file that is empty": {"", credentials.NATS{User: "u", PasswordFile: empty},
			[]string{"--nats-password-file", empty, "first line is empty"}},
		"an nkey file that is missing": {"", credentials.NATS{NKeyFile: missing}, []string{"--nats-nkey-file", missing}},
		"an nkey file without a seed": {"", credentials.NATS{NKeyFile: wrong}, []string{"--nats-nkey-file", wrong,
			"no seed"}},
		"credentials that are missing": {"", credentials.NATS{Creds: missing}, []string{"--nats-creds: ", missing}},
		"credentials without a JWT": {"", credentials.NATS{Creds: wrong}, []string{"--nats-creds " + wrong,
			"no JWT"}},
		"credentials of a seed alone":      {"", credentials.NATS{Creds: seed}, []string{"--nats-creds " + seed, "no JWT"}},
		"credentials without a seed":       {"", credentials.NATS{Creds: jwt}, []string{"--nats-creds " + jwt, "no seed"}},
		"authorities that are missing":     {"", credentials.NATS{CA: missing}, []string{"--nats-ca", missing}},
		"authorities without certificates": {"", credentials.NATS{CA: wrong}, []string{"--nats-ca", wrong, "no certificate"}},
		"a certificate that is none": {"", credentials.NATS{Cert: wrong, Key: wrong}, []string{"--nats-cert " + wrong,
			"--nats-key " + wrong}},
		"an inbox prefix with a wildcard": {"", credentials.NATS{InboxPrefix: "_INBOX.>"}, []string{"--nats-inbox-prefix",
			"_INBOX.orders"}},
		"an inbox prefix of half a token": {"", credentials.NATS{InboxPrefix: "_INBOX."}, []string{"--nats-inbox-prefix"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.login.Options(c.urls)
			wantError(t, err, c.want...)
		})
	}
}

// The same for Redis.
func TestRedis_Refuses(t *testing.T) {
	missing, empty, wrong := filepath.Join(t.TempDir(), "missing"), write(t, "\n"+secret), write(t, secret)
	for name, c := range map[string]struct {
		url   string
		login credentials.Redis
		want  []string
	}{
		"a user without a password": {"rediss://a", credentials.Redis{User: "u"}, []string{"--redis-user needs " +
			"--redis-password-file"}},
		"a certificate without a key": {"rediss://a", credentials.Redis{Cert: wrong}, []string{"--redis-cert needs " +
			"--redis-key"}},
		"a password in the URL": {"rediss://:x@a", credentials.Redis{User: "u", PasswordFile: wrong},
			[]string{"--redis-password-file", "the URL has a user or a password"}},
		"a password file that is empty": {"rediss://a", credentials.Redis{PasswordFile: empty},
			[]string{"--redis-password-file", empty}},
		"a password file that is missing": {"rediss://a", credentials.Redis{PasswordFile: missing},
			[]string{"--redis-password-file", missing}},
		"authorities that are missing":     {"rediss://a", credentials.Redis{CA: missing}, []string{"--redis-ca", missing}},
		"authorities without certificates": {"rediss://a", credentials.Redis{CA: wrong}, []string{"--redis-ca", wrong}},
		"a certificate that is none": {"rediss://a", credentials.Redis{Cert: wrong, Key: wrong},
			[]string{"--redis-cert " + wrong, "--redis-key " + wrong}},
		"authorities for a URL without TLS": {"redis://a", credentials.Redis{CA: wrong}, []string{"--redis-ca needs a " +
			"rediss:// URL"}},
		"a certificate and no TLS": {"redis://a", credentials.Redis{Cert: wrong, Key: wrong},
			[]string{"--redis-cert needs a rediss:// URL"}},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, c.login.Check(c.url, strings.HasPrefix(c.url, "rediss:")), c.want...)
		})
	}
	for _, c := range []struct {
		login     credentials.Redis
		sentinels bool
		want      string
	}{
		{credentials.Redis{SentinelUser: "u"}, true, "--redis-sentinel-user needs --redis-sentinel-password-file"},
		{credentials.Redis{SentinelPasswordFile: wrong}, false, "--redis-sentinel-password-file needs a redis+sentinel:// " +
			"URL"},
		{credentials.Redis{SentinelPasswordFile: missing}, true, "--redis-sentinel-password-file"},
	} {
		_, err := c.login.Sentinel(c.sentinels)
		wantError(t, err, c.want)
	}
	if got, err := (credentials.Redis{SentinelPasswordFile: wrong}).Sentinel(true); got != secret || err != nil {
		t.Errorf("the password is %q, %v", got, err)
	}
}

// A connection asks for the password anew each time, and keeps the last one while the file
// is being replaced. It goes red if the password is read only once.
func TestPasswordIsReadAnew(t *testing.T) {
	path := write(t, "one\r\nanother line\n")
	options, err := credentials.NATS{User: "u", PasswordFile: path}.Options("nats://a")
	if err != nil {
		t.Fatal(err)
	}
	var o nats.Options
	for _, option := range options {
		if err := option(&o); err != nil {
			t.Fatal(err)
		}
	}
	r := credentials.Redis{User: "u", PasswordFile: path}
	want := func(password string) {
		t.Helper()
		if user, got := o.UserInfo(); user != "u" || got != password {
			t.Errorf("NATS gets %q %q, want u %q", user, got, password)
		}
	}
	want("one")
	if err := os.WriteFile(path, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("two")
	if user, got, err := r.Login(t.Context()); user != "u" || got != "two" || err != nil {
		t.Errorf("Redis gets %q %q %v, want u two", user, got, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want("two")
	_, _, err = r.Login(t.Context())
	wantError(t, err, "--redis-password-file", path)
}

// A seed and a credentials file of nsc's form are accepted. It goes red if they are refused.
func TestNATS_Accepts(t *testing.T) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds := "-----BEGIN NATS USER JWT-----\neyJ0.e30.c2ln\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY " +
		"SEED-----\n" + string(seed) + "\n------END USER NKEY SEED------\n"
	for _, login := range []credentials.NATS{{NKeyFile: write(t, string(seed)+"\n")}, {Creds: write(t, creds)},
		{InboxPrefix: "_INBOX.orders"}, {}} {
		if _, err := login.Options("nats://user:password@a"); err != nil && (login.Creds+login.NKeyFile) == "" {
			t.Errorf("%+v: %v", login, err)
		}
		if _, err := login.Options("nats://a"); err != nil {
			t.Errorf("%+v: %v", login, err)
		}
	}
	if err := (credentials.Redis{}).Check("redis://user:password@a", false); err != nil {
		t.Error(err)
	}
}

// A server that knows the public key of an nkey lets in the holder of its seed, and nobody
// with another seed.
func TestNKeyConnects(t *testing.T) {
	var public string
	var files []string
	for range 2 {
		pair, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		seed, seedErr := pair.Seed()
		key, keyErr := pair.PublicKey()
		if err := errors.Join(seedErr, keyErr); err != nil {
			t.Fatal(err)
		}
		if public == "" {
			public = key
		}
		files = append(files, write(t, string(seed)+"\n"))
	}
	url := natstest.Start(t, natstest.Options{Config: fmt.Sprintf("authorization { timeout: 60, users: [ { nkey: %s } ] }",
		public)})
	for i, want := range []error{nil, nats.ErrAuthorization} {
		options, err := credentials.NATS{NKeyFile: files[i]}.Options(url)
		if err != nil {
			t.Fatal(err)
		}
		nc, err := nats.Connect(url, append(options, natstest.Patient)...)
		if !errors.Is(err, want) {
			t.Errorf("seed %d: %v, want %v", i, err, want)
		}
		if err == nil {
			nc.Close()
		}
	}
}
