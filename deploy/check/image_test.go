package check

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	certificates = "/etc/ssl/certs/ca-certificates.crt"
	data         = "/data" // where lapse may write

	// mostImageBytes is how large the files of the image may be together.
	mostImageBytes = 48 << 20

	imageVersion, imageRevision = "1.2.3", "0123456789abcdef0123456789abcdef01234567"
)

// builder runs buildah with a store of its own, which the test removes.
type builder struct {
	t    *testing.T
	args []string
}

func newBuilder(t *testing.T) *builder {
	t.Helper()
	need(t, "buildah", "buildah")
	dir, err := os.MkdirTemp("", "lapse-image-") // a short path, and buildah leaves files that only it removes
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{t, []string{"--log-level", "error", "--storage-driver", "vfs", "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run")}}
	t.Cleanup(func() {
		b.run("rm", "--all")
		b.run("rmi", "--all", "--force")
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("BUILDAH_ISOLATION", "chroot") // it needs no container engine
	return b
}

func (b *builder) run(args ...string) string {
	b.t.Helper()
	return strings.TrimSpace(run(b.t, "buildah", append(slices.Clone(b.args), args...)...))
}

// goBase makes the image that stands in for golang:1.26: no registry is asked. It has nothing
// but the certificates of this machine and folders, on which the build mounts this machine's
// programs, Go, and caches. It returns the name and the mounts.
func (b *builder) goBase() (name string, mounts []string) {
	b.t.Helper()
	container := b.run("from", "scratch")
	root := b.run("mount", container)
	for _, dir := range []string{"usr/local/go", "tmp", "root", "go/pkg/mod", "go/cache", filepath.Dir(certificates)} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	mounts = []string{"-v", "/usr:/usr:ro"}
	for _, dir := range []string{"bin", "lib", "lib64"} {
		if to, err := os.Readlink("/" + dir); err == nil {
			if err := os.Symlink(to, filepath.Join(root, dir)); err != nil {
				b.t.Fatal(err)
			}
		} else if _, err := os.Stat("/" + dir); err == nil {
			if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
				b.t.Fatal(err)
			}
			mounts = append(mounts, "-v", "/"+dir+":/"+dir+":ro")
		}
	}
	if err := os.WriteFile(filepath.Join(root, certificates), []byte(read(b.t, certificates)), 0o644); err != nil {
		b.t.Fatal(err)
	}
	env := map[string]string{}
	if err := json.Unmarshal([]byte(run(b.t, "go", "env", "-json")), &env); err != nil {
		b.t.Fatal(err)
	}
	config := []string{"config", "--env", "PATH=/opt/go/bin:/usr/bin:/bin", "--env", "GOCACHE=/go/cache", "--env", "GOPATH=/go"}
	for _, name := range []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOTOOLCHAIN"} {
		config = append(config, "--env", name+"="+env[name])
	}
	b.run(append(config, container)...)
	b.run("commit", "--quiet", container, "localhost/go")
	for _, cache := range []string{env["GOMODCACHE"], env["GOCACHE"]} {
		if err := os.MkdirAll(cache, 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	mounts = append(mounts, "-v", env["GOROOT"]+":/opt/go:ro", "-v", env["GOMODCACHE"]+":/go/pkg/mod", "-v", env["GOCACHE"]+":/go/cache")
	return "localhost/go", mounts
}

// asRoot runs the test again, as the root of a user namespace: it mounts folders, changes its
// root and its user.
func asRoot(t *testing.T) {
	t.Helper()
	need(t, "buildah", "buildah")
	need(t, "newuidmap", "uidmap")
	out, err := exec.Command("buildah", "unshare", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v").CombinedOutput()
	if err != nil {
		t.Fatalf("in a user namespace, for which /etc/subuid and /etc/subgid need a line for this user: %v\n%s", err, out)
	}
	t.Logf("in a user namespace:\n%s", out)
}

// imageConfig is what an image says about itself.
type imageConfig struct {
	User, WorkingDir     string
	Env, Entrypoint, Cmd []string
	ExposedPorts         map[string]struct{}
	Labels               map[string]string
	Healthcheck          struct {
		Test     []string
		Timeout  time.Duration
		Interval time.Duration
	}
}

// TestImage builds deploy/Dockerfile, looks at what is in the image, and runs it from its own
// root file system, as its own user, by its own command line and health check. Only the
// image that builds is not golang:1.26 but this machine's Go (see goBase).
func TestImage(t *testing.T) {
	if os.Geteuid() != 0 {
		asRoot(t)
		return
	}
	b := newBuilder(t)
	base, mounts := b.goBase()
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, repository, "go.mod"))[1]
	if !strings.Contains(read(t, deploy, "Dockerfile"), "\nARG BUILDER=docker.io/library/golang:"+version+"-") {
		t.Errorf("deploy/Dockerfile does not build with Go %s, as go.mod does", version)
	}
	args := []string{
		"build", "--format", "docker", "--pull=never", "--quiet", "-t", "localhost/lapse", "-f", filepath.Join(deploy, "Dockerfile"),
		"--build-arg", "BUILDER=" + base, "--build-arg", "VERSION=" + imageVersion, "--build-arg", "REVISION=" + imageRevision,
	}
	began := time.Now()
	b.run(append(append(args, mounts...), repository)...)
	t.Logf("buildah built the image in %s", time.Since(began).Round(time.Second))

	var inspected struct{ Docker struct{ Config imageConfig } }
	if err := json.Unmarshal([]byte(b.run("inspect", "--type", "image", "localhost/lapse")), &inspected); err != nil {
		t.Fatal(err)
	}
	config := inspected.Docker.Config
	root := b.run("mount", b.run("from", "--pull=never", "localhost/lapse"))
	var uid, gid uint32
	if _, err := fmt.Sscanf(config.User, "%d:%d", &uid, &gid); err != nil {
		t.Fatal(err)
	}
	t.Run("config", func(t *testing.T) { checkConfig(t, config) })
	t.Run("contents", func(t *testing.T) { checkContents(t, root, uid, gid) })
	t.Run("health", func(t *testing.T) { checkRun(t, root, config, uid, gid) })
	t.Run("alone", func(t *testing.T) { checkAlone(t, root, config, uid, gid) })
}

// checkConfig: the user is a number and not root, the health check is the program's own, and
// the environment has nothing but addresses.
func checkConfig(t *testing.T, c imageConfig) {
	user := regexp.MustCompile(`^([1-9]\d*):([1-9]\d*)$`)
	switch {
	case !user.MatchString(c.User):
		t.Errorf("the user of the image is %q, not two numbers that are not 0", c.User)
	case fmt.Sprint(c.Entrypoint, c.Cmd) != "[/lapse] [serve]":
		t.Errorf("the image runs %v %v", c.Entrypoint, c.Cmd)
	case fmt.Sprint(c.Healthcheck.Test) != "[CMD /lapse health]":
		t.Errorf("the health check of the image is %v", c.Healthcheck.Test)
	case c.Healthcheck.Timeout <= 5*time.Second: // the limit of lapse health itself, which gives the reason
		t.Errorf("the health check is stopped after %s", c.Healthcheck.Timeout)
	case len(c.Env) != 2 || !strings.HasPrefix(c.Env[0], "PATH=") || c.Env[1] != "LAPSE_HTTP_LISTEN=:7070" || c.WorkingDir != data:
		t.Errorf("the environment of the image is %v, in %s", c.Env, c.WorkingDir)
	case fmt.Sprint(c.ExposedPorts) != "map[7070/tcp:{}]":
		t.Errorf("the image exposes %v", c.ExposedPorts)
	case c.Labels["org.opencontainers.image.version"] != imageVersion || c.Labels["org.opencontainers.image.revision"] != imageRevision:
		t.Errorf("the labels of the image are %v", c.Labels)
	}
}

// checkContents: the image has the program and the certificates, and the user of the image
// cannot change anything but /data. The program is static, and names no folder of this machine.
func checkContents(t *testing.T, root string, uid, gid uint32) {
	var files []string
	size := int64(0)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		if path == filepath.Join(root, data) {
			if stat.Uid != uid || stat.Gid != gid || !d.IsDir() || info.Mode().Perm() != 0o755 {
				t.Errorf("%s belongs to %d:%d, mode %s", path, stat.Uid, stat.Gid, info.Mode())
			}
			return nil
		}
		if stat.Uid != 0 || stat.Gid != 0 || info.Mode().Perm()&0o002 != 0 || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%s belongs to %d:%d, mode %s", path, stat.Uid, stat.Gid, info.Mode())
		}
		if !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, root))
			size += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{certificates, "/lapse"}; !slices.Equal(files, want) {
		t.Errorf("the image has %v, want %v", files, want)
	}
	t.Logf("the image has %d files with %.1f MiB", len(files), float64(size)/(1<<20))
	if size > mostImageBytes {
		t.Errorf("the files of the image have %d bytes, and %d are allowed", size, mostImageBytes)
	}
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(read(t, root, certificates))) {
		t.Error("the certificates of the image are none")
	}
	program := read(t, root, "lapse")
	here, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{here, "/src/cmd/", "/go/pkg/mod", "PRIVATE KEY-----\nM", os.Getenv("HOME") + "/"} {
		if text != "/" && strings.Contains(program, text) {
			t.Errorf("the program contains %q", text)
		}
	}
}

// checkRun runs the image as its user, in its root file system: it gets ready, its own health
// check says so, and SIGTERM ends it cleanly. Servers are those of another lapse.
func checkRun(t *testing.T, root string, c imageConfig, uid, gid uint32) {
	at := startLapse(t)
	command := c.command(root, uid, gid)
	out, err := command(nil, "/lapse", "version").CombinedOutput()
	if want := "lapse " + imageVersion + " ("; err != nil || !strings.HasPrefix(string(out), want) || !strings.Contains(string(out), imageRevision) {
		t.Errorf("lapse version: %v\n%s", err, out)
	}
	image := start(t, command([]string{"LAPSE_NATS=" + at.NATS, "LAPSE_REDIS=" + at.Redis, "LAPSE_PREFIX=image", "LAPSE_HTTP_LISTEN=127.0.0.1:0"},
		append(slices.Clone(c.Entrypoint), c.Cmd...)...))
	listening := regexp.MustCompile(`msg=listening .*http=http://(\S+)`)
	var address string
	until(t, image, "lapse listens", func() bool {
		if m := listening.FindStringSubmatch(strings.Join(image.written(), "\n")); m != nil {
			address = m[1]
		}
		return address != ""
	})
	health := func() (string, error) {
		out, err := command([]string{"LAPSE_HTTP_LISTEN=" + address}, c.Healthcheck.Test[1:]...).CombinedOutput()
		return string(out), err
	}
	until(t, image, "the health check of the image passes", func() bool {
		out, err := health()
		return err == nil && out == "ready\n"
	})
	if code := image.stop(t); code != 0 {
		t.Errorf("SIGTERM ended the image with the exit code %d", code)
	}
	if out, err := health(); err == nil || !strings.Contains(out, "no lapse answers") {
		t.Errorf("the health check of a program that has ended: %v\n%s", err, out)
	}
}

// command makes commands that run in the image as its user.
func (c imageConfig) command(root string, uid, gid uint32) func(env []string, args ...string) *exec.Cmd {
	return func(env []string, args ...string) *exec.Cmd {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env = c.WorkingDir, append(slices.Clone(c.Env), env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uid, Gid: gid}}
		return cmd
	}
}

// checkAlone runs the image without a flag and without servers: it embeds them, keeps its data in /data, and prints
// a token with which a client may use the API.
func checkAlone(t *testing.T, root string, c imageConfig, uid, gid uint32) {
	free := []string{"LAPSE_HTTP_LISTEN=:0", "LAPSE_NATS_LISTEN=127.0.0.1:0"} // ports of this machine, not of a container
	image := start(t, c.command(root, uid, gid)(free, append(slices.Clone(c.Entrypoint), c.Cmd...)...))
	made, listening := regexp.MustCompile(`token=(\S+) `), regexp.MustCompile(`msg=listening .*http=http://\S+:(\d+)`)
	var token, port []string
	until(t, image, "lapse listens", func() bool {
		log := strings.Join(image.written(), "\n")
		token, port = made.FindStringSubmatch(log), listening.FindStringSubmatch(log)
		return token != nil && port != nil
	})
	until(t, image, "the token opens the API", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port[1]+"/v1/collections", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token[1])
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	if code := image.stop(t); code != 0 {
		t.Errorf("SIGTERM ended the image with the exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(root, data, "lapse-data", "nats")); err != nil {
		t.Error(err)
	}
}
