#!/bin/bash
# compare.sh OLD NEW: seeded runs of every kind with two binaries; what they leave must be the same.
# Here users have several batches, so that all ways of local training differ from each other.
OLD=$1; NEW=$2; W=$(mktemp -d); cd $W
BASE="--set rounds=4 --set data.posts_per_user=30 --set model.vocabulary=200 --set local.most_tokens=400 --set local.learning_rate=0.3 --set participation.cohort=40 --set participation.population=4000 --set evaluation.every=2 --set evaluation.users=20 --set noise_seed=5 --set checkpoint.every=2 --quiet"
ARR="--set participation.kind=arrival --set participation.min_separation=1 --set participation.max_participations=2"
declare -A K
K[plain]=""
K[fixed]="--set participation.kind=fixed-size"
K[tree]="$ARR --set privacy.mechanism=tree"
K[tree_restart]="$ARR --set privacy.mechanism=tree --set privacy.restarts=[2] --set privacy.tree_completion=true"
K[banded]="$ARR --set privacy.mechanism=banded --set privacy.bands=2"
K[blt]="$ARR --set privacy.mechanism=blt --set privacy.buffers=2"
K[once]="--set participation.kind=once"
K[none]="--set privacy.mechanism=none --set privacy.noise_multiplier= --set privacy.delta="
K[adaptive]="--set clip.kind=adaptive --set clip.norm=0.1 --set clip.quantile=0.5"
K[perlayer]="--set clip.kind=per-layer"
K[greedy]="--set clip.greedy=true"
K[rotation]="--set privacy.rotation=true"
K[conditional]="--set privacy.rounding=conditional --set privacy.grid_bits=12"
K[fedsgd]="--set local.algorithm=fedsgd-batch"
K[fedsgdall]="--set local.algorithm=fedsgd-all"
K[penalty]="--set local.update_penalty=0.01"
K[adam]="--set server.optimizer=adam --set server.momentum= --set server.learning_rate=0.01"
K[average]="--set estimator.kind=average --set privacy.mechanism=none --set privacy.noise_multiplier= --set privacy.delta="
K[weights]="--set estimator.full_weight_tokens=40 --set estimator.total_weight=3000"
K[float]="--set floating_point_noise=true"
K[secagg]="--secagg --set participation.kind=fixed-size --set participation.vanish=0.02 --set secagg.dropout=0.2"
K[secagg_tree]="--secagg $ARR --set privacy.mechanism=tree"
K[dist]="--secagg --set secagg.noise=distributed --set participation.kind=once"
K[vanish]="--set participation.vanish=0.1"
K[square]="--set schedule=[]"
K[example]="--set unit=example --set data.users=800 --set participation.population=25000"
same=0; other=0
norm() { python3 - "$1" "$2" <<'P'
import json,sys,glob,os,hashlib
d=sys.argv[1]; out={}
for f in ["metrics.jsonl","diagnostics.jsonl"]:
    p=os.path.join(d,f)
    # Rounds were counted from 0 in the lines of rounds, and are from 1 now.
    if os.path.exists(p): out[f]=[json.loads(l) for l in open(p)]
p=os.path.join(d,"model/model.safetensors")
b=open(p,"rb").read(); n=int.from_bytes(b[:8],"little"); out["model"]=hashlib.sha256(b[8+n:]).hexdigest()
first=int(sys.argv[2])
for l in out.get("diagnostics.jsonl",[]):
    if "round" in l: l["round"]-=first
drop={"time","id","key","previous","signature","hash","software","revision","digest","aggregation"}
def strip(v):
    if isinstance(v,dict): return {k:strip(x) for k,x in v.items() if k not in drop}
    if isinstance(v,list): return [strip(x) for x in v]
    return v
out["ledger"]=[strip(json.loads(l)) for l in open(os.path.join(d,"ledger.jsonl"))]
print(hashlib.sha256(json.dumps(out,sort_keys=True).encode()).hexdigest(), len(out["ledger"]))
P
}
for k in "${!K[@]}"; do
  rm -rf a b
  $OLD train $BASE ${K[$k]} --out a >/dev/null 2>a.err; ra=$?
  $NEW train $BASE ${K[$k]} --out b >/dev/null 2>b.err; rb=$?
  if [ $ra != 0 ] || [ $rb != 0 ]; then echo "$k: rc $ra $rb: $(tail -1 a.err) | $(tail -1 b.err)"; [ $ra = $rb ] || other=$((other+1)); continue; fi
  A=$(norm a 0); B=$(norm b 1)
  if [ "$A" = "$B" ]; then same=$((same+1)); else other=$((other+1)); echo "$k DIFFERS: $A / $B"; cp -r a /tmp/diff_a_$k; cp -r b /tmp/diff_b_$k; fi
done
echo "same $same, other $other"
