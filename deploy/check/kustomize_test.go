package check

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	strict "sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// manifests are what kustomize or Helm renders, by kind: nothing has two of a kind.
type manifests struct {
	Deployment          *apps.Deployment
	Service             *core.Service
	ConfigMap           *core.ConfigMap
	Collections         *core.ConfigMap // with the configurations of the collections
	Job                 *batch.Job
	Secret              *core.Secret
	Namespace           *core.Namespace
	PodDisruptionBudget *policy.PodDisruptionBudget
	NetworkPolicy       *networking.NetworkPolicy
	PodMonitor          *monitoring.PodMonitor
	ServiceMonitor      *monitoring.ServiceMonitor
	Autoscaler          *autoscaling.HorizontalPodAutoscaler
	StatefulSet         *apps.StatefulSet
}

// render renders a folder of deploy/kustomize, with the secrets of deploy/secrets in the
// overlay. Each document is decoded strictly: a field that its type lacks is an error.
func render(t *testing.T, folder string) *manifests {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(deploy, "kustomize"))); err != nil {
		t.Fatal(err)
	}
	for _, overlay := range overlays(t) {
		into := filepath.Join(dir, "overlays", overlay, "secrets")
		if err := os.RemoveAll(into); err != nil { // somebody's own
			t.Fatal(err)
		}
		if err := os.CopyFS(into, os.DirFS(secrets(t))); err != nil {
			t.Fatal(err)
		}
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(dir, folder))
	if err != nil {
		t.Fatal(err)
	}
	m := &manifests{}
	for _, resource := range rendered.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		m.decode(t, text)
	}
	return m
}

// decode decodes a document into the field for its kind.
func (m *manifests) decode(t *testing.T, text []byte) {
	t.Helper()
	var named meta.PartialObjectMetadata
	if err := yaml.Unmarshal(text, &named); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	kind, configMap := named.TypeMeta, &m.ConfigMap
	if strings.HasSuffix(named.Name, "-collections") {
		configMap = &m.Collections
	}
	into := map[meta.TypeMeta]any{
		{APIVersion: "apps/v1", Kind: "Deployment"}:                      &m.Deployment,
		{APIVersion: "apps/v1", Kind: "StatefulSet"}:                     &m.StatefulSet,
		{APIVersion: "v1", Kind: "Service"}:                              &m.Service,
		{APIVersion: "v1", Kind: "ConfigMap"}:                            configMap,
		{APIVersion: "batch/v1", Kind: "Job"}:                            &m.Job,
		{APIVersion: "v1", Kind: "Secret"}:                               &m.Secret,
		{APIVersion: "v1", Kind: "Namespace"}:                            &m.Namespace,
		{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:           &m.PodDisruptionBudget,
		{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}:      &m.NetworkPolicy,
		{APIVersion: "monitoring.coreos.com/v1", Kind: "PodMonitor"}:     &m.PodMonitor,
		{APIVersion: "monitoring.coreos.com/v1", Kind: "ServiceMonitor"}: &m.ServiceMonitor,
		{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"}:  &m.Autoscaler,
	}[kind]
	if into == nil {
		t.Fatalf("the test does not know the kind %v:\n%s", kind, text)
	}
	if !reflect.ValueOf(into).Elem().IsNil() {
		t.Fatalf("there are two documents of the kind %v", kind)
	}
	// As the API server does it. The strict mode of package yaml ignores case.
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatalf("%v: %v\n%s", kind, err, text)
	}
	if unknown, err := strict.UnmarshalStrict(asJSON, into); err != nil || len(unknown) > 0 {
		t.Fatalf("%v: %v %v\n%s", kind, err, unknown, text)
	}
}

func overlays(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(deploy, "kustomize/overlays"))
	if err != nil || len(entries) == 0 {
		t.Fatalf("overlays: %v, %v", entries, err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// everyFolder runs a test on the base, on each overlay, and on the chart with each set of values.
func everyFolder(t *testing.T, test func(t *testing.T, m *manifests)) {
	t.Run("base", func(t *testing.T) { test(t, render(t, "base")) })
	for _, overlay := range overlays(t) {
		t.Run(overlay, func(t *testing.T) { test(t, render(t, "overlays/"+overlay)) })
	}
	for _, set := range chartValues {
		t.Run("chart with "+set, func(t *testing.T) { test(t, renderChart(t, set)) })
	}
}

func (m *manifests) pod() core.PodSpec         { return m.Deployment.Spec.Template.Spec }
func (m *manifests) container() core.Container { return m.pod().Containers[0] }

// hasPort reports whether the container has a port of this name or number.
func (m *manifests) hasPort(port intstr.IntOrString) bool {
	return slices.ContainsFunc(m.container().Ports, func(p core.ContainerPort) bool {
		return port.Type == intstr.String && p.Name == port.StrVal || port.Type == intstr.Int && p.ContainerPort == port.IntVal
	})
}

// TestSelectorsSelectLapse: every selector selects the pods of the deployment, and selects by
// a label: an empty one would select the pods of others too.
func TestSelectorsSelectLapse(t *testing.T) {
	everyFolder(t, func(t *testing.T, m *manifests) {
		pods := labels.Set(m.Deployment.Spec.Template.Labels)
		check := func(name string, s *meta.LabelSelector) {
			selector, err := meta.LabelSelectorAsSelector(s)
			if err != nil || selector.Empty() || !selector.Matches(pods) {
				t.Errorf("%s selects %v, and the pods have %v: %v", name, selector, pods, err)
			}
		}
		check("Deployment", m.Deployment.Spec.Selector)
		check("PodDisruptionBudget", m.PodDisruptionBudget.Spec.Selector)
		check("NetworkPolicy", &m.NetworkPolicy.Spec.PodSelector)
		check("Service", &meta.LabelSelector{MatchLabels: m.Service.Spec.Selector})
		if m.PodMonitor != nil {
			check("PodMonitor", &m.PodMonitor.Spec.Selector)
		}
		if s := m.ServiceMonitor; s != nil {
			if selector, err := meta.LabelSelectorAsSelector(&s.Spec.Selector); err != nil || selector.Empty() || !selector.Matches(labels.Set(m.Service.Labels)) {
				t.Errorf("ServiceMonitor selects %v, and the Service has %v: %v", selector, m.Service.Labels, err)
			}
		}
		for _, c := range m.pod().TopologySpreadConstraints {
			check("spread over "+c.TopologyKey, c.LabelSelector)
		}
		if len(m.pod().TopologySpreadConstraints) != 2 {
			t.Errorf("pods spread by %v, want nodes and zones", m.pod().TopologySpreadConstraints)
		}
	})
}

// TestPortsMatch: lapse listens on the port of the container, and whatever names a port means
// that one. The network policy lets lapse reach names, the ports of NATS and
// Redis, and that of the collector of traces.
func TestPortsMatch(t *testing.T) {
	everyFolder(t, func(t *testing.T, m *manifests) {
		if got, want := m.ConfigMap.Data["LAPSE_HTTP_LISTEN"], fmt.Sprintf(":%d", m.container().Ports[0].ContainerPort); got != want {
			t.Errorf("lapse listens on %s, and the port of the container is %s", got, want)
		}
		for _, p := range m.Service.Spec.Ports {
			if !m.hasPort(p.TargetPort) {
				t.Errorf("the service leads to the port %s", p.TargetPort.String())
			}
		}
		for _, rule := range m.NetworkPolicy.Spec.Ingress {
			for _, p := range rule.Ports {
				if !m.hasPort(*p.Port) {
					t.Errorf("the network policy opens the port %s", p.Port.String())
				}
			}
		}
		allowed := map[string]bool{}
		for _, rule := range m.NetworkPolicy.Spec.Egress {
			for _, p := range rule.Ports {
				allowed[fmt.Sprintf("%s/%s", p.Port.String(), *p.Protocol)] = true
			}
		}
		want := []string{"53/UDP", "53/TCP"}
		for _, name := range []string{"LAPSE_NATS", "LAPSE_REDIS", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
			if m.ConfigMap.Data[name] == "" && strings.HasPrefix(name, "OTEL_") {
				continue // no traces
			}
			for text := range strings.SplitSeq(m.ConfigMap.Data[name], ",") {
				u, err := url.Parse(text)
				if err != nil || u.Port() == "" {
					t.Fatalf("%s: %q has no port: %v", name, text, err)
				}
				want = append(want, u.Port()+"/TCP")
			}
		}
		slices.Sort(want)
		for _, port := range slices.Compact(want) {
			if !allowed[port] {
				t.Errorf("the network policy does not let lapse reach the port %s", port)
			}
			delete(allowed, port)
		}
		if len(allowed) > 0 {
			t.Errorf("the network policy lets lapse reach %v, which it does not use", allowed)
		}
		if m.PodMonitor != nil {
			for _, e := range m.PodMonitor.Spec.PodMetricsEndpoints {
				if e.Port == nil || !m.hasPort(intstr.FromString(*e.Port)) {
					t.Errorf("Prometheus scrapes the port %v", e.Port)
				}
			}
		}
		if m.ServiceMonitor != nil {
			for _, e := range m.ServiceMonitor.Spec.Endpoints {
				if e.Port != m.Service.Spec.Ports[0].Name {
					t.Errorf("Prometheus scrapes the port %v of the service", e.Port)
				}
			}
		}
	})
}

// TestProbedPathsExist: a running lapse answers each path that a probe or Prometheus asks. A
// probe for a restart asks whether the process lives, and only the readiness probe more.
func TestProbedPathsExist(t *testing.T) {
	at := startLapse(t)
	everyFolder(t, func(t *testing.T, m *manifests) {
		c := m.container()
		paths := map[string]bool{}
		for want, probe := range map[*core.Probe]string{c.StartupProbe: "/healthz", c.LivenessProbe: "/healthz", c.ReadinessProbe: "/readyz"} {
			if want == nil || want.HTTPGet == nil || want.HTTPGet.Path != probe || !m.hasPort(want.HTTPGet.Port) {
				t.Fatalf("the probe of %s is %v", probe, want)
			}
			paths[probe] = true
		}
		if m.PodMonitor != nil {
			for _, e := range m.PodMonitor.Spec.PodMetricsEndpoints {
				paths[e.Path] = true
			}
		}
		if m.ServiceMonitor != nil {
			for _, e := range m.ServiceMonitor.Spec.Endpoints {
				paths[e.Path] = true
			}
		}
		for path := range paths {
			response, err := http.Get(at.HTTP + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("%s answers %s", path, response.Status)
			}
		}
	})
}

// TestManifestsStartLapse: lapse knows the variables that the manifests set, and takes their
// values. Each file that a variable names is a key of the mounted Secret.
func TestManifestsStartLapse(t *testing.T) {
	everyFolder(t, func(t *testing.T, m *manifests) {
		c := m.container()
		if fmt.Sprint(c.Args) != "[serve]" || c.Command != nil || len(c.Env) > 0 || len(c.EnvFrom) != 1 || c.EnvFrom[0].ConfigMapRef.Name != m.ConfigMap.Name {
			t.Errorf("the container runs %v %v with %v and %v", c.Command, c.Args, c.Env, c.EnvFrom)
		}
		mounted, used := map[string]bool{}, map[string]bool{}
		for _, v := range m.pod().Volumes {
			for _, mount := range c.VolumeMounts {
				for _, key := range m.keys(t, v) {
					if mount.Name == v.Name {
						mounted[mount.MountPath+"/"+key] = true
					}
				}
			}
		}
		for name, value := range m.ConfigMap.Data {
			if used[value] = true; strings.HasPrefix(value, "/") && !mounted[value] {
				t.Errorf("%s=%s, but only %v are mounted", name, value, mounted)
			}
		}
		for file := range mounted {
			if !used[file] {
				t.Errorf("no variable names the file %s", file)
			}
		}
		accepts(t, m.ConfigMap.Data, "serve")
	})
}

// keys are the files of a volume: those that it lists, as in the chart, which has no Secret, or all
// of the Secret.
func (m *manifests) keys(t *testing.T, v core.Volume) []string {
	t.Helper()
	if m.Secret == nil {
		var keys []string
		for _, item := range v.Secret.Items {
			keys = append(keys, item.Path)
		}
		return keys
	}
	if v.Secret.SecretName != m.Secret.Name {
		t.Errorf("the volume %s is the secret %s, not %s", v.Name, v.Secret.SecretName, m.Secret.Name)
	}
	return slices.Collect(maps.Keys(m.Secret.Data))
}

// TestPodsAreRestricted: the pods fit the Pod Security Standard "restricted", run as the user
// of the image, have no token for the API, and get no variables from other Services.
func TestPodsAreRestricted(t *testing.T) {
	user := regexp.MustCompile(`(?m)^USER (\d+):(\d+)$`).FindStringSubmatch(read(t, deploy, "Dockerfile"))
	everyFolder(t, func(t *testing.T, m *manifests) {
		pod, c := m.pod(), m.container()
		p, s := pod.SecurityContext, c.SecurityContext
		switch {
		case len(pod.Containers) != 1 || len(pod.InitContainers) > 0:
			t.Error("the pod has more than one container")
		case fmt.Sprint(*p.RunAsUser, *p.RunAsGroup) != user[1]+" "+user[2] || !*p.RunAsNonRoot:
			t.Errorf("the pod runs as %d:%d, and the image as %s:%s", *p.RunAsUser, *p.RunAsGroup, user[1], user[2])
		case p.SeccompProfile == nil || p.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault:
			t.Errorf("the pod has the seccomp profile %v", p.SeccompProfile)
		case *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Privileged != nil || fmt.Sprint(s.Capabilities.Drop) != "[ALL]" || len(s.Capabilities.Add) > 0:
			t.Errorf("the container has %+v", s)
		case pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken:
			t.Error("the pod has a token for the API of Kubernetes")
		case pod.EnableServiceLinks == nil || *pod.EnableServiceLinks:
			t.Error("the pod gets variables from other services")
		case pod.HostNetwork || pod.HostPID || pod.HostIPC:
			t.Error("the pod shares something with its node")
		}
		for _, v := range pod.Volumes {
			if v.Secret == nil || *v.Secret.DefaultMode != 0o440 || *p.FSGroup != *p.RunAsGroup {
				t.Errorf("the volume %s is not a secret that the group of lapse reads", v.Name)
			}
		}
	})
}

// TestPodsSurviveMaintenance: a rollout and a drained node leave pods that work, and a drain
// goes on while no pod is ready. A pod has more time to end than lapse needs.
func TestPodsSurviveMaintenance(t *testing.T) {
	everyFolder(t, func(t *testing.T, m *manifests) {
		pdb, rolling := m.PodDisruptionBudget.Spec, m.Deployment.Spec.Strategy.RollingUpdate
		pods := m.Deployment.Spec.Replicas
		if m.Autoscaler != nil {
			if pods != nil {
				t.Error("each upgrade would undo what the autoscaler has set")
			}
			pods = m.Autoscaler.Spec.MinReplicas
		}
		replicas := int(*pods)
		if replicas < 2 || pdb.MaxUnavailable.IntValue() < 1 || pdb.MaxUnavailable.IntValue() >= replicas || pdb.MinAvailable != nil {
			t.Errorf("of %d pods %v may be away", replicas, pdb.MaxUnavailable)
		}
		if pdb.UnhealthyPodEvictionPolicy == nil || *pdb.UnhealthyPodEvictionPolicy != policy.AlwaysAllow {
			t.Error("pods that are not ready keep a node from being drained")
		}
		if rolling == nil || rolling.MaxUnavailable.IntValue() != 0 || rolling.MaxSurge.IntValue() < 1 {
			t.Errorf("a rollout takes pods away before others are ready: %+v", rolling)
		}
		if grace := m.pod().TerminationGracePeriodSeconds; grace == nil || *grace < 10 {
			t.Errorf("a pod has %v seconds to end", grace)
		}
		r := m.container().Resources
		if r.Requests.Cpu().IsZero() || r.Requests.Memory().IsZero() || r.Limits.Memory().IsZero() || !r.Limits.Cpu().IsZero() {
			t.Errorf("resources %+v: want requests, and a limit of the memory alone", r)
		}
	})
}

// TestProduction: the overlay changes what it says it changes.
func TestProduction(t *testing.T) {
	m := render(t, "overlays/production")
	testProduction(t, m)
	if m.ConfigMap.Data["LAPSE_SHARDS"] != "" || strings.Contains(m.ConfigMap.Data["LAPSE_REDIS"], ",") {
		t.Errorf("production has several shards, or a Redis Cluster: %v", m.ConfigMap.Data)
	}
}

// TestCluster: this overlay is production with as many shards as NATS maps writes to, and
// with a Redis Cluster.
func TestCluster(t *testing.T) {
	m := render(t, "overlays/cluster")
	testProduction(t, m)
	if shards := m.ConfigMap.Data["LAPSE_SHARDS"]; !strings.Contains(read(t, deploy, "nats/shards-"+shards+".conf"), "partition("+shards+",2,3)") {
		t.Errorf("LAPSE_SHARDS=%s, and deploy/nats does not map to as many", shards)
	}
	if nodes := strings.Split(m.ConfigMap.Data["LAPSE_REDIS"], ","); len(nodes) != 3 {
		t.Errorf("lapse knows %d nodes of the Redis Cluster, want 3: %v", len(nodes), nodes)
	}
}

func testProduction(t *testing.T, m *manifests) {
	t.Helper()
	if *m.Deployment.Spec.Replicas != 3 || m.ConfigMap.Data["LAPSE_REPLICAS"] != "3" {
		t.Errorf("%d pods, LAPSE_REPLICAS=%s, want 3 and 3", *m.Deployment.Spec.Replicas, m.ConfigMap.Data["LAPSE_REPLICAS"])
	}
	if m.Namespace == nil || m.Deployment.Namespace != m.Namespace.Name || m.PodMonitor.Namespace != m.Namespace.Name {
		t.Errorf("the namespaces differ: %v, %s", m.Namespace, m.Deployment.Namespace)
	}
	if c := m.pod().TopologySpreadConstraints[0]; c.TopologyKey != "kubernetes.io/hostname" || c.WhenUnsatisfiable != core.DoNotSchedule {
		t.Errorf("two pods may share a node: %+v", c)
	}
	if !strings.HasPrefix(m.ConfigMap.Data["LAPSE_NATS"], "tls://") || !strings.HasPrefix(m.ConfigMap.Data["LAPSE_REDIS"], "rediss://") {
		t.Errorf("the servers are used without TLS: %v", m.ConfigMap.Data)
	}
	if m.container().Image != "registry.example.com/lapse:1.0.0" {
		t.Errorf("the image is %s", m.container().Image)
	}
	for _, rule := range m.NetworkPolicy.Spec.Egress {
		if len(rule.To) == 0 {
			t.Errorf("lapse may connect to anybody: %+v", rule)
		}
	}
}
