#!/usr/bin/env python3
"""Write what skl2onnx makes of scikit-learn's estimators: NAME.onnx and NAME.npz.

    sklearn_models.py OUT [--only NAME,..]

Compare with `tests/networks/compare.py RELAX_AOT OUT`. Needs scikit-learn and skl2onnx.
"""
import warnings

from skl2onnx import to_onnx
from sklearn import (cluster, datasets, decomposition, discriminant_analysis, ensemble, feature_selection, kernel_approximation,
                     linear_model, naive_bayes, neighbors, neural_network, pipeline, preprocessing, svm, tree)

from writing import Folder

warnings.simplefilter("ignore")


def models():
    x, y = datasets.load_iris(return_X_y=True)
    x = x.astype("f4")
    xr, yr = datasets.load_diabetes(return_X_y=True)
    xr, yr = xr.astype("f4"), yr.astype("f4")
    for m in [linear_model.LogisticRegression(max_iter=500), linear_model.SGDClassifier(loss="log_loss"),
              linear_model.RidgeClassifier(), tree.DecisionTreeClassifier(max_depth=4),
              ensemble.RandomForestClassifier(8, max_depth=4), ensemble.GradientBoostingClassifier(n_estimators=5),
              ensemble.HistGradientBoostingClassifier(max_iter=5), ensemble.ExtraTreesClassifier(5, max_depth=3),
              ensemble.AdaBoostClassifier(n_estimators=4), svm.SVC(probability=True), svm.LinearSVC(),
              naive_bayes.GaussianNB(), neighbors.KNeighborsClassifier(3), neural_network.MLPClassifier((8,), max_iter=50),
              discriminant_analysis.LinearDiscriminantAnalysis()]:
        yield type(m).__name__, m.fit(x, y), x
    for m in [linear_model.LinearRegression(), linear_model.Lasso(), linear_model.BayesianRidge(),
              tree.DecisionTreeRegressor(max_depth=4), ensemble.RandomForestRegressor(6, max_depth=4),
              ensemble.GradientBoostingRegressor(n_estimators=5), svm.SVR(), neighbors.KNeighborsRegressor(3),
              neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=50)]:
        yield type(m).__name__, m.fit(xr, yr), xr
    for m in [preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), preprocessing.RobustScaler(),
              preprocessing.Normalizer(), preprocessing.PolynomialFeatures(2), preprocessing.Binarizer(),
              preprocessing.KBinsDiscretizer(3, encode="onehot-dense"), preprocessing.PowerTransformer(),
              decomposition.PCA(2), decomposition.TruncatedSVD(2), cluster.KMeans(3, n_init=1),
              feature_selection.VarianceThreshold(0.2)]:
        yield type(m).__name__, m.fit(x), x
    m = pipeline.make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(3), linear_model.LogisticRegression())
    yield "Pipeline", m.fit(x, y), x


def export(name, model, x):
    options = {"zipmap": False} if hasattr(model, "predict_proba") or name == "Pipeline" else None

    def write(path):
        # Twelve rows here, any number at run time.
        made = to_onnx(model, x[:1], options={id(model): options} if options else None, target_opset={"": 18, "ai.onnx.ml": 3})
        path.write_bytes(made.SerializeToString())

    return write


def main():
    folder = Folder(__doc__)
    for name, model, x in models():
        if folder.wants(name):
            # skl2onnx calls the only input X.
            folder.add(name, export(name, model, x), {"X": x[::13]})
    folder.close()


if __name__ == "__main__":
    main()
