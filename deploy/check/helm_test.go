package check

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

var chart = filepath.Join(deploy, "helm/lapse")

// chartValues are the sets of values with which tests render the chart: "default", and the files of
// its folder ci.
var chartValues = []string{"default", "production", "everything"}

func values(t *testing.T, set string) map[string]any {
	t.Helper()
	v := map[string]any{}
	if set != "default" {
		if err := yaml.Unmarshal([]byte(read(t, chart, "ci", set+"-values.yaml")), &v); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// template does what helm template does: it checks the values against their schema and renders
// the chart as the release "lapse" in the namespace "lapse".
func template(t *testing.T, v map[string]any) (map[string]string, error) {
	t.Helper()
	c, err := loader.LoadDir(chart)
	if err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: "lapse", Namespace: "lapse", IsInstall: true, Revision: 1}
	all, err := util.ToRenderValues(c, v, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.RenderWithContext(t.Context(), c, all)
}

// renderChart renders the chart and decodes its documents as those of kustomize.
func renderChart(t *testing.T, set string) *manifests {
	t.Helper()
	// The one file of the values that deploy/secrets does not make.
	if err := os.WriteFile(filepath.Join(secrets(t), "http-tokens"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := template(t, values(t, set))
	if err != nil {
		t.Fatal(err)
	}
	m := &manifests{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, text := range strings.Split(files[name], "\n---\n") {
			if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text) != "" {
				m.decode(t, []byte(text))
			}
		}
	}
	return m
}

// TestChartLints: helm lint finds nothing but that there is no icon.
func TestChartLints(t *testing.T) {
	for _, set := range chartValues {
		for _, m := range lint.RunAll(chart, values(t, set), "lapse").Messages {
			if m.Severity > support.InfoSev || !strings.Contains(m.Error(), "icon is recommended") {
				t.Errorf("with %s: %v", set, m)
			}
		}
	}
}

// TestChartSets: the tests render every file of values in the folder ci.
func TestChartSets(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(chart, "ci/*-values.yaml"))
	if err != nil || len(files) != len(chartValues)-1 {
		t.Errorf("the folder ci has %v, and the tests render %v: %v", files, chartValues, err)
	}
}

// TestChartIsKustomize: the chart with its defaults is deploy/kustomize/base, and the chart for
// production is the overlay cluster.
func TestChartIsKustomize(t *testing.T) {
	for set, folder := range map[string]string{"default": "base", "production": "overlays/cluster"} {
		t.Run(set, func(t *testing.T) {
			want, got := meaning(render(t, folder)), meaning(renderChart(t, set))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kustomize (-) and Helm (+) differ:\n%s", diff)
			}
		})
	}
}

var secretsFolder = regexp.MustCompile(`^/run/secrets/[a-z-]+/`)

// meaning takes out what is meant to differ:
//   - Helm's labels, which name the release, the namespace, and the annotation by which a change
//     of the variables restarts the pods (kustomize gives the ConfigMap another name);
//   - the Namespace, which helm install --create-namespace makes, and the monitor: kustomize has
//     one of the pods, and the chart one of the Service;
//   - the Secret: the chart mounts Secrets that are there, each into a folder of its own.
func meaning(m *manifests) *manifests {
	m.Namespace, m.PodMonitor, m.ServiceMonitor, m.Secret = nil, nil, nil, nil
	m.ConfigMap.Name = "lapse"
	d := &m.Deployment.Spec
	d.Template.Annotations, d.Template.Spec.Volumes = nil, nil
	d.Template.Spec.Containers[0].VolumeMounts = nil
	d.Template.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name = "lapse"
	for name, value := range m.ConfigMap.Data {
		if m.ConfigMap.Data[name] = secretsFolder.ReplaceAllString(value, "/run/secrets/"); value == "" {
			delete(m.ConfigMap.Data, name) // as if it were not there
		}
	}
	for _, object := range []*meta.ObjectMeta{
		&m.Deployment.ObjectMeta, &d.Template.ObjectMeta, &m.Service.ObjectMeta, &m.ConfigMap.ObjectMeta,
		&m.PodDisruptionBudget.ObjectMeta, &m.NetworkPolicy.ObjectMeta,
	} {
		object.Namespace = ""
		plain(object.Labels)
	}
	for _, s := range []*meta.LabelSelector{
		d.Selector, m.PodDisruptionBudget.Spec.Selector, &m.NetworkPolicy.Spec.PodSelector,
		d.Template.Spec.TopologySpreadConstraints[0].LabelSelector,
		d.Template.Spec.TopologySpreadConstraints[1].LabelSelector,
	} {
		plain(s.MatchLabels)
	}
	plain(m.Service.Spec.Selector)
	return m
}

func plain(labels map[string]string) {
	for _, name := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
		delete(labels, name)
	}
}

// TestChartWithEverything: each value has its effect.
func TestChartWithEverything(t *testing.T) {
	m := renderChart(t, "everything")
	pod, hpa := m.pod(), m.Autoscaler.Spec
	if hpa.ScaleTargetRef.Name != m.Deployment.Name || *hpa.MinReplicas != 2 || hpa.MaxReplicas != 4 || *hpa.Metrics[0].Resource.Target.AverageUtilization != 60 {
		t.Errorf("the autoscaler is %+v", hpa)
	}
	if image := m.container().Image; !strings.HasPrefix(image, "registry.example.com/lapse@sha256:") || m.container().ImagePullPolicy != "Always" ||
		pod.ImagePullSecrets[0].Name != "registry" {
		t.Errorf("the image is %s, pulled %s with %v", image, m.container().ImagePullPolicy, pod.ImagePullSecrets)
	}
	if pod.NodeSelector["disk"] != "fast" || pod.Tolerations[0].Key != "lapse" || pod.TopologySpreadConstraints[0].WhenUnsatisfiable != "DoNotSchedule" {
		t.Errorf("the pods may run on %v, %v, %v", pod.NodeSelector, pod.Tolerations, pod.TopologySpreadConstraints[0])
	}
	if m.ServiceMonitor.Labels["release"] != "prometheus" || m.ServiceMonitor.Spec.Endpoints[0].Interval != "30s" {
		t.Errorf("the monitor is %+v", m.ServiceMonitor)
	}
	secretOf := map[string]string{}
	for _, v := range pod.Volumes {
		secretOf[v.Name] = v.Secret.SecretName
	}
	want := map[string]string{
		"nats":      "nats-login",
		"nats-tls":  "nats-certificate",
		"redis":     "redis-login",
		"redis-tls": "redis-certificate",
		"http":      "http-tokens",
	}
	if diff := cmp.Diff(want, secretOf); diff != "" {
		t.Errorf("the volumes differ from the secrets of the values:\n%s", diff)
	}
	for name, want := range map[string]string{
		"LAPSE_LOG_FORMAT": "text", "LAPSE_LOG_MAX_AGE": "7d", "LAPSE_FOLLOW": "a",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.tracing:4318", "LAPSE_REPLICAS": "3",
		"LAPSE_NATS_INBOX_PREFIX": "_INBOX.lapse", "LAPSE_NATS_CA": "/run/secrets/nats-tls/ca.crt",
	} {
		if got := m.ConfigMap.Data[name]; got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
	if egress := m.NetworkPolicy.Spec.Egress; len(egress) != 4 || egress[3].Ports[0].Port.IntValue() != 4318 ||
		egress[3].To[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "tracing" {
		t.Errorf("it may reach %+v, want the collector too", egress)
	}
}

// TestChartCollections: the Job runs lapse apply with what the values have, by the variables of lapse, and its pods are
// none of lapse's. Without collections there is none.
//
// It fails if lapse does not take the file, a flag or a variable.
func TestChartCollections(t *testing.T) {
	if m := renderChart(t, "default"); m.Job != nil || m.Collections != nil {
		t.Errorf("without collections there is %+v", m.Job)
	}
	m := renderChart(t, "everything")
	pod, file := m.Job.Spec.Template, filepath.Join(t.TempDir(), "collections.yaml")
	c := pod.Spec.Containers[0]
	if m.Job.Annotations["helm.sh/hook"] != "post-install,post-upgrade" || c.Image != m.container().Image || c.EnvFrom[0].ConfigMapRef.Name != m.ConfigMap.Name {
		t.Errorf("the job is %+v", m.Job)
	}
	if labels.SelectorFromSet(m.Service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		t.Errorf("the service selects the pods of the job, which have %v", pod.Labels)
	}
	mounts := map[string]string{}
	for _, mount := range c.VolumeMounts {
		mounts[mount.Name] = mount.MountPath
	}
	for _, volume := range pod.Spec.Volumes {
		if mounts[volume.Name] == "" {
			t.Errorf("the volume %s is not mounted: %v", volume.Name, mounts)
		}
		if volume.ConfigMap != nil && volume.ConfigMap.Name != m.Collections.Name {
			t.Errorf("the volume is %+v, want the collections", volume)
		}
	}
	if diff := cmp.Diff(map[string]string{"collections": "/etc/lapse", "nats": "/run/secrets/nats", "nats-tls": "/run/secrets/nats-tls"}, mounts); diff != "" {
		t.Errorf("the mounts differ:\n%s", diff)
	}
	if err := os.WriteFile(file, []byte(m.Collections.Data["collections.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	args, found := slices.Clone(c.Args), slices.Index(c.Args, "/etc/lapse/collections.yaml")
	if found < 0 {
		t.Fatalf("it runs lapse %v", args)
	}
	args[found] = file
	env := map[string]string{c.Env[0].Name: c.Env[0].Value}
	for _, name := range []string{"LAPSE_NATS_USER", "LAPSE_NATS_PASSWORD_FILE", "LAPSE_NATS_CA", "LAPSE_NATS_CERT", "LAPSE_NATS_KEY", "LAPSE_NATS_INBOX_PREFIX"} {
		env[name] = m.ConfigMap.Data[name]
	}
	accepts(t, env, args...)
	if text := m.Collections.Data["collections.yaml"]; !strings.Contains(text, "defaultTtl: 2592000\n") {
		t.Errorf("the file is\n%s", text)
	}
}

// TestChartOff: what is switched off is not there, and what logs lapse in has its variable.
func TestChartOff(t *testing.T) {
	off := map[string]any{"enabled": false}
	files, err := template(t, map[string]any{
		"podDisruptionBudget": off, "networkPolicy": off,
		"nats":  map[string]any{"secret": map[string]any{"name": "n", "creds": "c", "nkey": "k"}},
		"redis": map[string]any{"secret": map[string]any{"name": "r", "sentinelPassword": "s"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(slices.Collect(maps.Values(files)), "\n")
	for _, kind := range []string{"PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor", "HorizontalPodAutoscaler"} {
		if strings.Contains(all, "kind: "+kind) {
			t.Errorf("there is a %s", kind)
		}
	}
	for _, line := range []string{
		"LAPSE_NATS_CREDS: /run/secrets/nats/c", "LAPSE_NATS_NKEY_FILE: /run/secrets/nats/k",
		"LAPSE_REDIS_SENTINEL_PASSWORD_FILE: /run/secrets/redis/s",
	} {
		if !strings.Contains(all, line) {
			t.Errorf("the chart does not set %s", line)
		}
	}
}

// TestChartRefuses: the schema refuses values that would start something else than was meant.
func TestChartRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a misspelt value":             `{replcas: 3}`,
		"a misspelt value inside":      `{nats: {uri: "nats://n:4222"}}`,
		"no shard":                     `{shards: 0}`,
		"too many shards":              `{shards: 65}`,
		"a password in a URL":          `{redis: {url: "redis://lapse:secret@redis:6379"}}`,
		"a URL of something else":      `{nats: {url: "http://nats:4222"}}`,
		"a password without a Secret":  `{nats: {secret: {password: key}}}`,
		"a variable that lapse lacks":  `{config: {GOGC: "50"}}`,
		"a number as a variable":       `{config: {LAPSE_REPLICAS: 3}}`,
		"one pod under the autoscaler": `{autoscaling: {enabled: true, minReplicas: 1}}`,
		"a collection that is none":    `{collections: {orders: 3600}}`,
		"a digest that is none":        `{image: {digest: "1.2.3"}}`,
	} {
		var v map[string]any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if _, err := template(t, v); err == nil || !strings.Contains(err.Error(), "schema") {
			t.Errorf("%s: %s gives %v", name, text, err)
		}
	}
}

// TestChartMemory: the limit of the memory is no less than what follows from the comment at the
// value, for the shards of each set.
func TestChartMemory(t *testing.T) {
	for _, set := range chartValues {
		shards := int64(1)
		if set == "production" {
			shards = 4
		}
		limits := renderChart(t, set).container().Resources.Limits
		limit := limits.Memory().Value()
		if least := 2 * (60_000_000 + 8*12<<20 + shards*8<<20); limit < least {
			t.Errorf("with %s lapse may use %d bytes, and needs %d", set, limit, least)
		}
	}
}

// TestRedisManifest: the manifest for Redis has what deploy/redis/redis.conf names.
func TestRedisManifest(t *testing.T) {
	m := &manifests{}
	for _, text := range strings.Split(read(t, deploy, "helm/redis.yaml"), "\n---\n") {
		m.decode(t, []byte(text))
	}
	spec := m.StatefulSet.Spec
	c, pod := spec.Template.Spec.Containers[0], spec.Template.Labels
	if spec.ServiceName != m.Service.Name || spec.Selector.MatchLabels["app.kubernetes.io/name"] != pod["app.kubernetes.io/name"] ||
		m.Service.Spec.Selector["app.kubernetes.io/name"] != pod["app.kubernetes.io/name"] {
		t.Errorf("the service %v and the set %v do not select the pods %v", m.Service.Spec, spec.Selector, pod)
	}
	volumes := map[string]bool{spec.VolumeClaimTemplates[0].Name: true}
	for _, v := range spec.Template.Spec.Volumes {
		volumes[v.Name] = true
	}
	at := map[string]bool{}
	for _, mount := range c.VolumeMounts {
		if at[mount.MountPath] = true; !volumes[mount.Name] {
			t.Errorf("%s mounts %s, which is no volume", mount.MountPath, mount.Name)
		}
	}
	for _, path := range regexp.MustCompile(`(?m)^\S+ (/\S+)/[^/\s]+$`).FindAllStringSubmatch(read(t, deploy, "redis/redis.conf"), -1) {
		if !at[path[1]] {
			t.Errorf("redis.conf names a file of %s, and the pod has %v", path[1], at)
		}
	}
	if !at[filepath.Dir(c.Args[1])] || !at["/data"] {
		t.Errorf("redis-server runs with %v, and the pod has %v", c.Args, at)
	}
}

// TestNATSValues: the values for NATS's chart promise what deploy/nats/nats.conf does.
func TestNATSValues(t *testing.T) {
	var v struct{ Config map[string]any }
	if err := yaml.Unmarshal([]byte(read(t, deploy, "helm/nats.yaml")), &v); err != nil {
		t.Fatal(err)
	}
	values, conf := fmt.Sprint(v.Config), read(t, deploy, "nats/nats.conf")
	for ours, theirs := range map[string]string{
		"sync_interval: always":   "sync_interval:always",
		"max_payload: 1MiB":       "max_payload:<< 1MiB >>",
		"max_control_line: 2KiB":  "max_control_line:<< 2KiB >>",
		"max_subscriptions: 1024": "max_subscriptions:1024",
		"max_connections: 4096":   "max_connections:4096",
		"max_file_store: 20GiB":   "size:20Gi",
		`include "accounts.conf"`: "$include:accounts.conf",
	} {
		if !strings.Contains(conf, ours) || !strings.Contains(values, theirs) {
			t.Errorf("nats.conf has to have %s, and the values %s:\n%s", ours, theirs, values)
		}
	}
}
