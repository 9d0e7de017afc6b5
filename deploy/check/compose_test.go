package check

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// compositions are the compose files that are started together.
var compositions = map[string][]string{
	"trial":   {"compose.yaml"},
	"cluster": {"compose.yaml", "compose.cluster.yaml"},
}

// lapses and servers are the services that run lapse, and those that each of them waits for.
func lapses(composition string) (names, servers []string) {
	if composition == "trial" {
		return []string{"lapse-1", "lapse-2"}, []string{"nats-1", "nats-2", "nats-3", "redis"}
	}
	return []string{"lapse-1", "lapse-2", "lapse-3"}, []string{"nats-1", "nats-2", "nats-3", "redis-cluster"}
}

// isOnce reports whether a service runs to its end, and is not started again.
func isOnce(service string) bool { return service == "client" || service == "redis-cluster" }

// everyComposition runs a test on each composition.
func everyComposition(t *testing.T, test func(t *testing.T, composition string, project *types.Project)) {
	for name := range compositions {
		t.Run(name, func(t *testing.T) { test(t, name, loadCompose(t, name)) })
	}
}

// loadCompose loads the files of a composition, strictly, from a copy of deploy in which
// deploy/secrets has run.
func loadCompose(t *testing.T, composition string) *types.Project {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "deploy")
	if err := os.CopyFS(dir, os.DirFS(deploy)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "trial")); err != nil { // somebody's own
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "trial"), os.DirFS(secrets(t))); err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, file := range compositions[composition] {
		files = append(files, filepath.Join(dir, file))
	}
	options, err := cli.NewProjectOptions(files,
		cli.WithProfiles([]string{"*"}), cli.WithResolvedPaths(true), cli.WithConsistency(true), cli.WithNormalization(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// environment is what compose sets in a service, from env_file and environment.
func environment(s types.ServiceConfig) map[string]string {
	env := map[string]string{}
	for name, value := range s.Environment {
		if value != nil {
			env[name] = *value
		}
	}
	return env
}

// TestComposeServices: the compose file has the services that its comment promises, and each
// is restricted, restarted, checked and limited.
func TestComposeServices(t *testing.T) {
	everyComposition(t, func(t *testing.T, composition string, project *types.Project) {
		names, servers := lapses(composition)
		want := slices.Concat([]string{"client"}, names, servers)
		if composition == "cluster" {
			want = append(want, "prometheus", "redis-1", "redis-2", "redis-3", "redis-4", "redis-5", "redis-6")
		}
		slices.Sort(want)
		if got := fmt.Sprint(project.ServiceNames()); got != fmt.Sprint(want) {
			t.Errorf("services %v, want %v", got, want)
		}
		for name, s := range project.Services {
			switch {
			case !s.ReadOnly:
				t.Errorf("%s may write into its image", name)
			case fmt.Sprint(s.CapDrop) != "[ALL]" || len(s.CapAdd) > 0 || s.Privileged:
				t.Errorf("%s has capabilities: cap_drop %v, cap_add %v", name, s.CapDrop, s.CapAdd)
			case fmt.Sprint(s.SecurityOpt) != "[no-new-privileges:true]":
				t.Errorf("%s may gain privileges: security_opt %v", name, s.SecurityOpt)
			case s.Deploy == nil || s.Deploy.Resources.Limits == nil || s.Deploy.Resources.Limits.MemoryBytes == 0 ||
				s.Deploy.Resources.Limits.NanoCPUs == 0 || s.Deploy.Resources.Limits.Pids == 0:
				t.Errorf("%s has no limit of memory, CPU and processes", name)
			case !isOnce(name) && s.Restart != "unless-stopped":
				t.Errorf("%s is not restarted: restart %q", name, s.Restart)
			}
			for _, p := range s.Ports {
				if p.HostIP != "127.0.0.1" {
					t.Errorf("%s: port %s is open on %q, and not on the loopback address alone", name, p.Published, p.HostIP)
				}
			}
		}
		if client := project.Services["client"]; len(client.DependsOn) > 0 || fmt.Sprint(client.Profiles) != "[client]" {
			t.Errorf("the client starts %v, and has the profiles %v", client.DependsOn, client.Profiles)
		}
		for _, name := range names {
			if len(project.Services[name].DependsOn) != len(servers) {
				t.Errorf("%s waits for %v", name, project.Services[name].DependsOn)
			}
			for _, on := range servers {
				want := types.ServiceConditionHealthy
				if isOnce(on) {
					want = types.ServiceConditionCompletedSuccessfully
				}
				if project.Services[name].DependsOn[on].Condition != want {
					t.Errorf("%s does not wait for %s: %s", name, on, want)
				}
			}
		}
	})
}

// TestComposeHealth: whatever another service waits for has a health check: its own, or that
// of the image of lapse.
func TestComposeHealth(t *testing.T) {
	everyComposition(t, func(t *testing.T, composition string, project *types.Project) {
		imageHasOne := strings.Contains(read(t, deploy, "Dockerfile"), "\nHEALTHCHECK ")
		for name, s := range project.Services {
			switch own := s.HealthCheck != nil && !s.HealthCheck.Disable && len(s.HealthCheck.Test) > 0; {
			case isOnce(name) || own:
			case !strings.HasPrefix(name, "lapse-") || s.HealthCheck != nil || !imageHasOne:
				t.Errorf("%s has no health check", name)
			}
		}
	})
}

// TestComposeFiles: every file that the compose file names is there after deploy/secrets has
// run, and a container can read it, whatever user it has; each path under /run/secrets in a
// service, its health check and its configuration files is a secret of that service.
func TestComposeFiles(t *testing.T) {
	everyComposition(t, func(t *testing.T, composition string, project *types.Project) {
		for name, file := range project.Secrets {
			info, err := os.Stat(filepath.Join(secrets(t), filepath.Base(file.File)))
			switch {
			case err != nil:
				t.Errorf("secret %s: %v", name, err)
			case info.Size() == 0 || info.Mode().Perm()&0o044 != 0o044:
				t.Errorf("secret %s: %d bytes, mode %s: a container cannot read it", name, info.Size(), info.Mode())
			case filepath.Base(filepath.Dir(file.File)) != "trial":
				t.Errorf("secret %s comes from %s", name, file.File)
			}
		}
		configs := map[string]string{}
		for name, file := range project.Configs {
			configs[name] = read(t, file.File)
		}
		used := map[string]bool{}
		for name, s := range project.Services {
			has := map[string]bool{}
			for _, secret := range s.Secrets {
				used[secret.Source] = true
				if has[secret.Source] = secret.Target == "" || filepath.Base(secret.Target) == secret.Source; !has[secret.Source] {
					t.Errorf("%s: secret %s has the name %s", name, secret.Source, secret.Target)
				}
			}
			text := fmt.Sprint(s.Command, environment(s))
			if s.HealthCheck != nil {
				text += fmt.Sprint(s.HealthCheck.Test)
			}
			for _, config := range s.Configs {
				if config.Source == "redis.conf" && slices.ContainsFunc(s.Configs, func(c types.ServiceConfigObjConfig) bool { return c.Source == "cluster.conf" }) {
					text += without(configs["redis.conf"], configs["cluster.conf"]) // which includes it
				} else {
					text += configs[config.Source]
				}
				used[config.Source] = true
				if filepath.Base(config.Target) != config.Source {
					t.Errorf("%s: config %s has the name %s", name, config.Source, config.Target)
				}
			}
			uses := map[string]bool{}
			for _, m := range regexp.MustCompile(`/run/secrets/([\w.-]*\w)`).FindAllStringSubmatch(text, -1) {
				uses[m[1]] = true
			}
			for secret := range uses {
				if !has[secret] {
					t.Errorf("%s uses the secret %s and does not have it", name, secret)
				}
			}
			for secret := range has {
				if !uses[secret] {
					t.Errorf("%s has the secret %s and does not use it", name, secret)
				}
			}
			if s.Build != nil {
				if _, err := os.Stat(filepath.Join(repository, "deploy", filepath.Base(s.Build.Dockerfile))); err != nil ||
					filepath.Clean(s.Build.Context) != filepath.Dir(project.WorkingDir) {
					t.Errorf("%s is built from %s in %s: %v", name, s.Build.Dockerfile, s.Build.Context, err)
				}
			}
		}
		for name := range project.Secrets {
			if !used[name] {
				t.Errorf("no service uses the secret %s", name)
			}
		}
		for name := range project.Configs {
			if !used[name] {
				t.Errorf("no service uses the config %s", name)
			}
		}
	})
}

// without is a configuration of Redis without the lines that a later file replaces.
func without(conf, later string) (text string) {
	for line := range strings.Lines(conf) {
		if name, _, _ := strings.Cut(line, " "); !strings.Contains(later, "\n"+name+" ") {
			text += line
		}
	}
	return text
}

// TestComposeStartsLapse: lapse knows the variables of its services and takes their values.
func TestComposeStartsLapse(t *testing.T) {
	everyComposition(t, func(t *testing.T, composition string, project *types.Project) {
		names, _ := lapses(composition)
		for _, name := range names {
			accepts(t, environment(project.Services[name]), "serve")
		}
		accepts(t, environment(project.Services["client"]), "status")
		if command := project.Services["client"].Command; fmt.Sprint(command) != "[status]" {
			t.Errorf("the client runs %v", command)
		}
	})
}

// TestComposeStartsNATS: the nats-servers have what their configuration reads from the
// environment, each under the name that the others know, and the version of the image is the
// one that the tests of lapse run.
func TestComposeStartsNATS(t *testing.T) {
	everyComposition(t, func(t *testing.T, composition string, project *types.Project) {
		wanted := regexp.MustCompile(`\$(NATS_[A-Z_]+)`).FindAllStringSubmatch(read(t, deploy, "nats/nats.conf")+read(t, deploy, "nats/accounts.conf"), -1)
		if len(wanted) == 0 {
			t.Error("nats.conf and accounts.conf read no variable")
		}
		version := regexp.MustCompile(`github.com/nats-io/nats-server/v2 v([0-9.]+)`).FindStringSubmatch(read(t, repository, "go.mod"))
		for _, name := range []string{"nats-1", "nats-2", "nats-3"} {
			s := project.Services[name]
			env := environment(s)
			for _, m := range wanted {
				if env[m[1]] == "" {
					t.Errorf("%s: the variable %s is not set", name, m[1])
				}
			}
			if want := "[nats-server -c /etc/nats/nats.conf]"; fmt.Sprint(s.Command) != want {
				t.Errorf("%s runs %v, want %s", name, s.Command, want)
			}
			if env["NATS_NAME"] != name {
				t.Errorf("%s has the name %s", name, env["NATS_NAME"])
			}
			if !strings.Contains(env["NATS_ROUTES"], "nats://routes:"+env["NATS_ROUTES_PASSWORD"]+"@"+name+":6222") {
				t.Errorf("%s has no route to %s: %s", s.Name, name, env["NATS_ROUTES"])
			}
			if !strings.HasSuffix(env["NATS_ROUTES_CERT"], "/"+name+"-routes.crt") || !strings.HasSuffix(env["NATS_ROUTES_KEY"], "/"+name+"-routes.key") ||
				!strings.HasSuffix(env["NATS_ROUTES_CA"], "/routes-ca.crt") {
				t.Errorf("%s has the certificate %s for its routes", name, env["NATS_ROUTES_CERT"])
			}
			if !strings.HasSuffix(env["NATS_CERT"], "/"+name+".crt") || !strings.HasSuffix(env["NATS_KEY"], "/"+name+".key") {
				t.Errorf("%s has the certificate %s", name, env["NATS_CERT"])
			}
			if len(s.Volumes) != 1 || s.Volumes[0].Target != env["NATS_STORE"] || s.Volumes[0].Source != name {
				t.Errorf("%s keeps its data in %s, and its volumes are %v", name, env["NATS_STORE"], s.Volumes)
			}
			if want := "docker.io/library/nats:" + version[1] + "-alpine"; s.Image != want {
				t.Errorf("%s has the image %s, want %s", name, s.Image, want)
			}
		}
	})
}

// TestComposeStartsCluster: each node of the Redis Cluster has its own name, which its certificate has, its
// own address and its own volume; lapse knows some of the names, and the nodes are made one cluster. NATS
// maps writes to as many shards as lapse has.
func TestComposeStartsCluster(t *testing.T) {
	project := loadCompose(t, "cluster")
	certificate := run(t, "openssl", "x509", "-in", filepath.Join(secrets(t), "redis-node.crt"), "-noout", "-ext", "subjectAltName")
	command := []string{"sh", "/etc/redis/create-cluster"}
	seen := map[string]bool{}
	for i := range 6 {
		name := fmt.Sprintf("redis-%d", i+1)
		s := project.Services[name]
		if want := "[redis-server /etc/redis/cluster.conf --cluster-announce-hostname " + name + "]"; fmt.Sprint(s.Command) != want {
			t.Errorf("%s runs %v, want %s", name, s.Command, want)
		}
		if !strings.Contains(certificate, "DNS:"+name) {
			t.Errorf("the certificate of Redis does not have the name %s: %s", name, certificate)
		}
		if len(s.Volumes) != 1 || s.Volumes[0].Target != "/data" || s.Volumes[0].Source != name {
			t.Errorf("%s has the volumes %v", name, s.Volumes)
		}
		address := s.Networks["default"].Ipv4Address
		if address == "" || seen[address] {
			t.Errorf("%s has the address %q, which is none of its own", name, address)
		}
		seen[address] = true
		command = append(command, address+":6379")
	}
	if got := project.Services["redis-cluster"].Command; fmt.Sprint(got) != fmt.Sprint(command) {
		t.Errorf("redis-cluster runs %v, want %v", got, command)
	}
	env := environment(project.Services["lapse-1"])
	for at := range strings.SplitSeq(env["LAPSE_REDIS"], ",") {
		if name, _, _ := strings.Cut(strings.TrimPrefix(at, "rediss://"), ":"); project.Services[name].Name == "" {
			t.Errorf("lapse uses %s, which is no service", at)
		}
	}
	if mapping := read(t, project.Configs["shards.conf"].File); env["LAPSE_SHARDS"] == "" || !strings.Contains(mapping, "partition("+env["LAPSE_SHARDS"]+",2,3)") {
		t.Errorf("lapse has %s shards, and NATS has the mapping %s", env["LAPSE_SHARDS"], mapping)
	}
	scraped := read(t, deploy, "prometheus/prometheus.yaml")
	for _, name := range []string{"lapse-1", "lapse-2", "lapse-3"} {
		if !strings.Contains(scraped, `"`+name+`:7070"`) {
			t.Errorf("Prometheus does not scrape %s", name)
		}
	}
}
