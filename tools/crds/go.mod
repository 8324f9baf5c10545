// The projects whose definitions our custom resources must serve, pinned. Nothing here is built.
module ferry.invalid/crds

go 1.25

require (
	github.com/kubeflow/mpi-operator v0.8.2
	github.com/kubeflow/trainer/v2 v2.2.0
	github.com/kubeflow/training-operator v1.9.3
	github.com/project-codeflare/appwrapper v1.1.2
	github.com/ray-project/kuberay/ray-operator v1.6.1
	github.com/tektoncd/pipeline v1.10.0
	k8s.io/autoscaler/cluster-autoscaler/apis v0.0.0-20240830133931-adfbe7e45277
	sigs.k8s.io/jobset v0.12.0
	sigs.k8s.io/kueue v0.19.2
)
